"""Hold the spans of a request until they are complete, overdue or too many."""

from .joiner import SERVICES_MAX, SPAN_OVERHEAD_BYTES, Joiner
from .past import NAME_BYTES, REMEMBERED_BYTES

__all__ = ["NAME_BYTES", "REMEMBERED_BYTES", "SERVICES_MAX", "SPAN_OVERHEAD_BYTES", "Joiner"]
