"""Why a prefix-cache lookup missed.

Spans of an LLM fleet come in over OTLP and KV-cache events over ZMQ; each span goes out again, and a
span that belongs to a miss carries one supported cause and one owner.

- *receive* and *spool* (``edge``): a request is on disk before it is acknowledged.
- *split* (``wire``): a request is cut into spans as bytes; one that no *dialect* claims is never parsed.
- *join* (``join``): the spans of one request are held until they are complete or overdue.
- *attribute* (``evidence``, ``attribution``): what the spans say and what the ``ledger`` knew when the
  engine looked; then the first row of an ordered table that fits.
- *redact* (``redaction``): nothing that could identify a prompt leaves.
- *export* and *measure* (``edge``, ``measures``): the spans go on, and the misses are counted by class.

``pipeline`` knows this order and is pure; ``edge.service`` knows the world.
"""

__version__ = "0.1.0"
