"""Hold the spans of a request until they are complete, overdue or too many."""

from .joiner import SERVICES_MAX, SPAN_OVERHEAD_BYTES, Joiner

__all__ = ["SERVICES_MAX", "SPAN_OVERHEAD_BYTES", "Joiner"]
