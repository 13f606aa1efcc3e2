"""The memtable: takes decoded batches in order and flushes them as a segment."""
