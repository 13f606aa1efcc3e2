from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whymiss.model.worker_name import Address, address_of, plain_name, split_rank, with_rank

NAMES = ("10.0.0.7:8000", "host.svc", "pod-2", "pod-9-rank-1", "[fd00::1]:8000", "fd00::1", "7587870")


@pytest.mark.parametrize(
    ("name", "worker", "rank"),
    [
        ("pod-rank-12", "pod", 12),
        ("10.0.0.7:8000-rank-0", "10.0.0.7:8000", 0),
        ("[fd00::1]:8000-rank-3", "[fd00::1]:8000", 3),
        ("pod-rank-1-rank-2", "pod-rank-1", 2),
        ("a\nb-rank-1", "a\nb", 1),
        ("pod-rank-", "pod-rank-", None),
        ("pod-rank-x", "pod-rank-x", None),
        ("-rank-1", "-rank-1", None),
        ("pod-rank-1234567", "pod-rank-1234567", None),
        ("pod-rank-\u0663", "pod-rank-\u0663", None),
        ("pod", "pod", None),
        ("", "", None),
    ],
)
def test_a_rank_is_the_end_of_a_name(name: str, worker: str, rank: int | None) -> None:
    assert split_rank(name) == (worker, rank)


@given(st.text(min_size=1), st.integers(1, 999_999))
def test_a_rank_that_is_shown_can_be_read(worker: str, rank: int) -> None:
    assert split_rank(with_rank(worker, rank)) == (worker, rank)


@pytest.mark.parametrize("rank", [None, 0])
def test_the_first_rank_is_not_shown(rank: int | None) -> None:
    assert with_rank("pod", rank) == "pod"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["{}", "http://{}", "https://{}/v1/x", " {} "])
def test_scheme_path_and_spaces_are_no_part_of_a_name(name: str, form: str) -> None:
    assert plain_name(form.format(name)) == name


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("NS/Pod-1", "ns/pod-1"),
        ("http://Host:80/v1", "host:80"),
        ("http://[FD00:0:0::1]:8000/v1", "[fd00::1]:8000"),
        ("FD00:0:0:0:0:0:0:1", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("[fe80::1%ETH0]:80", "[fe80::1%eth0]:80"),
        ("[no address]:80", "[no address]:80"),
        ("a:b:c", "a:b:c"),
    ],
)
def test_a_name_has_one_spelling(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@given(st.text())
def test_a_plain_name_is_plain(name: str) -> None:
    plain = plain_name(name)
    assert plain_name(plain) == plain or "://" in plain


@pytest.mark.parametrize(
    ("plain", "address", "is_host"),
    [
        ("10.0.0.7:8000", Address("10.0.0.7", 8000), True),
        ("10.0.0.7", Address("10.0.0.7"), True),
        ("pod:8000", Address("pod", 8000), False),
        ("ns/pod-1", Address("ns/pod-1"), False),
        ("host.svc:x", Address("host.svc:x"), True),
        ("fd00::1", Address("fd00::1"), True),
        ("[fd00::1]:8000", Address("fd00::1", 8000), True),
        # Without brackets the last group may be a port or not: it is none.
        ("fd00::1:8000", Address("fd00::1:8000"), True),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(plain: str, address: Address, is_host: bool) -> None:
    assert address_of(plain) == address
    assert address_of(plain).is_host is is_host
