"""Immutable segments: runs of operations sorted by block key, the chain table beside them, and pruning by Bloom filters."""
