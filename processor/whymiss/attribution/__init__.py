"""The ordered table of causes (``table``), its predicates (``rows``) and what is made of them (``verdict``)."""

from .rows import Policy
from .table import TABLE, Row, is_local
from .verdict import agree, decide

__all__ = ["TABLE", "Policy", "Row", "agree", "decide", "is_local"]
