"""From the spans of a request and the record of the workers' caches to the evidence that a verdict rests on.

``requests/`` says which spans belong to one lookup, what they say and whose record it is about, ``hypotheses`` where
reuse ended and which block was missed (there may be several readings), ``peers`` where a lookup falls in other workers'
records, and ``sections/`` what there is to know of the missed block then, a section when it is first asked for
(``established``). Nothing here decides a cause.
"""
