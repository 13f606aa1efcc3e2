"""From the spans of a request and the ledger's record to the facts that a verdict rests on.

``grouping`` says which spans belong to one lookup, ``workers`` which record is its own, ``reading``
where reuse ended and which block was missed (there may be several readings), ``facts`` what the
record says of that block at the moment of the lookup. Nothing here decides a cause.
"""
