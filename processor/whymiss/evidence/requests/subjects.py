"""Which lookups a router's, a tier's or a gateway's span is about.

By request id where it has one that a lookup has too: exactly, else by the id that the engine made of a
caller's. By trace otherwise: the only lookup there, its parent or child, or the one that began inside it. What
fits several requests that merely share an id belongs to none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ...model import Span, caller_ids, request_ids


class Subjects:
    """The spans that carry verdicts, ready to be asked whose a companion is."""

    def __init__(self, subjects: Sequence[Span]) -> None:
        self._subjects = subjects
        self._by_trace: defaultdict[bytes, list[int]] = defaultdict(list)
        self._by_id: defaultdict[str, list[int]] = defaultdict(list)
        self._by_caller: defaultdict[str, list[int]] = defaultdict(list)
        for number, subject in enumerate(subjects):
            self._by_trace[subject.trace_id].append(number)
            for name in request_ids(subject):
                self._by_id[name].append(number)
            for name in caller_ids(subject):
                self._by_caller[name].append(number)

    def of(self, span: Span) -> tuple[int, ...]:
        """The numbers of the subjects that a span is about."""
        own = [number for number in self._by_trace.get(span.trace_id, ()) if self._subjects[number] is span]
        if own:  # guard: belong-own
            return tuple(own)
        # guard: belong-caller, belong-exact
        named = _listed(self._by_id, request_ids(span)) or _listed(self._by_caller, caller_ids(span))
        return tuple(self._of_one_call(span, named) if named else self._of_trace(span))

    def _of_one_call(self, span: Span, named: list[int]) -> list[int]:
        """Of lookups with one id those of the call that a span is about: callers use ids again."""
        here = self._where(named, lambda subject: subject.trace_id in _traces(span))
        if here:  # guard: belong-here
            return here
        if self._is_one_call(named):  # guard: belong-one-call
            return named
        then = self._where(named, lambda subject: _overlap(span, subject))  # guard: belong-overlap
        return then if self._is_one_call(then) else []  # guard: belong-then

    def _is_one_call(self, numbers: Iterable[int]) -> bool:
        """Whether no engine id comes in two traces: the prompts of a list have ids of their own."""
        seen: dict[str, bytes] = {}
        subjects = [self._subjects[number] for number in numbers]
        return all(
            seen.setdefault(name, subject.trace_id) == subject.trace_id
            for subject in subjects
            for name in request_ids(subject)[:1]
        )

    def _of_trace(self, span: Span) -> list[int]:
        same = [number for trace_id in _traces(span) for number in self._by_trace.get(trace_id, ())]
        if len(same) <= 1:
            return same
        adjacent = self._where(
            same, lambda subject: subject.parent_span_id == span.span_id or subject.span_id == span.parent_span_id
        )
        if adjacent:  # guard: belong-children
            return adjacent
        inside = self._where(
            same, lambda subject: span.start_unix_nanos <= subject.start_unix_nanos <= span.end_unix_nanos
        )
        return inside if len(inside) == 1 else []  # guard: belong-inside

    def _where(self, numbers: Iterable[int], holds: Callable[[Span], bool]) -> list[int]:
        return [number for number in numbers if holds(self._subjects[number])]


def _listed(index: dict[str, list[int]], names: Iterable[str]) -> list[int]:
    return list(dict.fromkeys(number for name in names for number in index.get(name, ())))


def _traces(span: Span) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys((span.trace_id, *span.linked_trace_ids)))


def _overlap(span: Span, subject: Span) -> bool:
    return span.start_unix_nanos <= subject.end_unix_nanos and subject.start_unix_nanos <= span.end_unix_nanos
