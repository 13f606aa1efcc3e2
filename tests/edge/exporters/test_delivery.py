from __future__ import annotations

from whymiss.edge.exporters.delivery import Deferred, Delivered, DeliveryState, Refused


def test_a_destination_retries_since_its_first_deferral_until_it_answers_for_good() -> None:
    standing = DeliveryState()
    assert (standing.answered_at, standing.deferring_since, standing.code) == (None, None, None)
    standing.note(Deferred("UNAVAILABLE"), 3)
    standing.note(Deferred("timeout"), 5)
    assert (standing.deferring_since, standing.code, standing.failed_at, standing.answered_at) == (
        3,
        "timeout",
        5,
        None,
    )
    standing.note(Delivered(), 7)
    assert (standing.deferring_since, standing.answered_at) == (None, 7)


def test_what_went_wrong_last_stays_to_be_read() -> None:
    standing = DeliveryState()
    standing.note(Refused("INVALID_ARGUMENT"), 3)
    standing.note(Delivered(), 7)
    assert (standing.code, standing.failed_at, standing.answered_at) == ("INVALID_ARGUMENT", 3, 7)
