"""OTLP bytes: cut a request into spans, read a few fields, splice attributes in, put it together again.

No other part of whymiss knows protobuf. ``split`` and ``fields`` parse with upb by a private schema
(``proto/whymiss/wire/shallow.proto``) that declares as ``bytes`` what is only carried; ``scan`` and
``splice`` walk a span's bytes and leave all that they do not change as it came.
"""
