"""What the demo prints of the metrics."""

from __future__ import annotations

from whymiss.tools.demo import class_sums


def test_series_that_look_alike_without_their_other_labels_are_summed() -> None:
    text = """# TYPE prefix_cache_unknown counter
prefix_cache_unknown_total{reason="lookup_unseen",isolation_policy="none"} 1
prefix_cache_unknown_total{reason="lookup_unseen",model="m"} 2
prefix_cache_misses_total{cause="evicted",owner="platform",reason="capacity",model="m"} 3
whymiss_spans_late_total 4
"""
    assert class_sums(text) == {
        'prefix_cache_unknown_total{reason="lookup_unseen"}': 3,
        'prefix_cache_misses_total{cause="evicted",owner="platform",reason="capacity"}': 3,
    }
