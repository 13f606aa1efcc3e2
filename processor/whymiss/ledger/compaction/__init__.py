"""Compaction: merges small segments, and folds expired ones into the base snapshot."""
