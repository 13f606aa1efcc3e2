"""A fast model of a fleet's prefix caches, for asking what another fleet would have done with the same requests.

Workers hold blocks in an LRU, requests take no time, and a router sends each to one worker. Every missed block gets
its cause from the model's own state: nothing here knows the ledger or the table of causes.
"""
