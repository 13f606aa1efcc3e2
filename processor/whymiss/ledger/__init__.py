"""What every worker stored and removed, when, and where the record has holes.

``decode`` turns a publisher's bytes into ``events``; ``digests`` replaces token ids and extra keys by
keyed numbers on the way in, so that neither is ever kept.
"""
