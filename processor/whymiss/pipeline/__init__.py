"""Split, join, attribute, redact: the whole core as one synchronous object.

Only this part knows the order of the stages. ``core`` carries spans through them, ``events`` feeds the
ledger, ``judge`` turns a request into its verdict, ``ports`` has the types that the edge sees.
"""

from .core import Pipeline, row_of
from .ports import Accepted, Judged, KvOutcome, KvSource

__all__ = ["Accepted", "Judged", "KvOutcome", "KvSource", "Pipeline", "row_of"]
