"""A defect of ours costs one request its verdict, or its spans; never the others, and never without a count."""

from __future__ import annotations

from tests.edge.cores import counted
from tests.pipeline.test_tickets import ENGINE, pipeline, request
from whymiss.config import RedactionConfig
from whymiss.measures import Dimensions, Exemplar, Measures
from whymiss.model import Verdict
from whymiss.wire.split import span_count


class BrokenOnce(Measures):
    """Measures whose first verdict is one too many."""

    broken = False

    def observe(
        self,
        verdict: Verdict,
        dimensions: Dimensions,
        *,
        first_token_seconds: float | None,
        weight: float = 1.0,
        exemplar: Exemplar | None = None,
    ) -> None:
        if not self.broken:
            self.broken = True
            raise ZeroDivisionError
        super().observe(verdict, dimensions, first_token_seconds=first_token_seconds, weight=weight, exemplar=exemplar)


def test_a_release_that_fails_leaves_unjudged_and_the_others_as_ever() -> None:
    flow = pipeline()
    flow.measures = BrokenOnce(dimensions=(), values_max=1, series_max=1000, start_unix_nanos=1)
    for number in (1, 2):
        flow.traces(request([(ENGINE, number)]), 0.0, ticket=number)
    left = flow.advance(100.0)
    assert [(item.tickets, span_count(item.body)) for item in left] == [((1,), 1), ((2,), 1)]
    assert b"prefix_cache.miss.cause" not in left[0].body
    assert b"prefix_cache.miss.cause" in left[1].body
    assert counted(flow.measures, "whymiss.stage.failures", stage="release", error_type="ZeroDivisionError") == 1


def test_spans_that_cannot_be_redacted_are_dropped_with_a_count_and_their_ticket_is_over() -> None:
    flow = pipeline()
    flow.adopt(RedactionConfig(drop_attributes=(7,)), (), "begun")  # type: ignore[arg-type]
    flow.traces(request([(ENGINE, 1), (ENGINE, 2)]), 0.0, ticket=5)
    left = flow.advance(100.0)
    assert [(item.tickets, item.body) for item in left] == [((5,), b""), ((5,), b"")]
    assert counted(flow.measures, "whymiss.spans.dropped", reason="release_failed") == 2
    assert not flow.holds(5)
