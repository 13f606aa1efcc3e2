"""The requests among joined spans: which spans are whose, what they say, and which worker served them.

``grouping`` makes requests of spans, with ``subjects`` (whose a router's or tier's span is) and ``disaggregation`` (halves
and wrappers); ``report`` holds what the spans of one request say; ``workers`` names the record that is its own;
``request_log`` and ``companions`` remember what came with earlier requests.
"""
