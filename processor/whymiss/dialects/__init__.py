"""One file per emitter: which spans are ours, and what they say.

A dialect claims a span by its scope and a few bytes that must occur in it; only then is the span
parsed, once, into the fields that the dialect asks for. What a dialect does not know it leaves
absent: absent is never zero.
"""
