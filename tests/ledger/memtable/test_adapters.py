"""An adapter's name is known by the extra keys that it is among, and names take bounded room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whymiss.ledger.events import ExtraKey
from whymiss.ledger.hashing import Digester
from whymiss.ledger.memtable.chain_tails import ADAPTER_CHARS, ADAPTERS_MAX, ROOT, ChainTails
from whymiss.ledger.segment_store import SegmentStore

DIGESTER = Digester(b"a key of 16 byte")
KEYS = st.lists(st.tuples(st.sampled_from(["lora", "cache_salt", "mm"]), st.integers(0, 3)), max_size=3).map(tuple)


def a_stream() -> ChainTails:
    return ChainTails(SegmentStore(), DIGESTER)


@given(stored=st.lists(st.tuples(KEYS, st.none() | st.sampled_from("ab")), max_size=6))
def test_only_extra_keys_with_an_adapter_among_them_name_one(
    stored: list[tuple[tuple[ExtraKey, ...], str | None]],
) -> None:
    chain_tails = a_stream()
    named: dict[tuple[ExtraKey, ...], str] = {}
    for extras, adapter in stored:
        chain_tails.with_extra_keys(ROOT, 0, extras, adapter, described=True)
        if adapter is not None and any(kind == "lora" for kind, _ in extras):
            named.setdefault(extras, adapter)
    assert chain_tails.adapters == {DIGESTER.extras_digest(extras): name for extras, name in named.items()}


def test_of_too_many_adapters_the_latest_are_remembered() -> None:
    chain_tails = a_stream()
    for number in range(ADAPTERS_MAX + 10):
        chain_tails.with_extra_keys(ROOT, 0, (("lora", number),), f"adapter-{number}", described=True)
    assert len(chain_tails.adapters) == ADAPTERS_MAX
    assert DIGESTER.extras_digest((("lora", 0),)) not in chain_tails.adapters
    assert chain_tails.adapters[DIGESTER.extras_digest((("lora", ADAPTERS_MAX + 9),))] == f"adapter-{ADAPTERS_MAX + 9}"


def test_a_name_that_is_none_is_not_remembered() -> None:
    chain_tails = a_stream()
    for number, length in enumerate((ADAPTER_CHARS, ADAPTER_CHARS + 1)):
        chain_tails.with_extra_keys(ROOT, 0, (("lora", number),), "a" * length, described=True)
    assert list(chain_tails.adapters.values()) == ["a" * ADAPTER_CHARS]
