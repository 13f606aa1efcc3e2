"""The ledger: a log-structured store of KV-cache events, one stream a publisher, and what it answers about a position.

Words, and the file where each is made true:

- *stream*: what one (worker, rank) published, in the order of its numbers (``stream``; gaps, replays and restarts in
  ``sequencer``). All streams of a fleet are a *ledger* (``ledger``).
- *ordinal*, *position*: the number of an event in its stream, and how many events had happened at a lookup. Every
  question carries a position; none means "now". When an event happened is found by its ordinal (``time_index``).
- *operation*: one block stored or removed, in one *place*: a tier and a cache group (``segment/operations``,
  ``segment/segment``, ``cache_groups``).
- *memtable*: batches that were taken and not flushed, and what builds a segment of them (``stream``, ``memtable/``).
- *flush*: the memtable's batches become a segment (``memtable/segment_builder``).
- *segment*: the events of a stretch of ordinals, immutable, in columns (``segment/segment``).
- *run*: a segment's operations of one place, sorted by block key and in event order inside a key
  (``segment/operations``).
- *chain table*: beside the runs, each stored block's parent, depth, token digests and extra keys, in the order of
  storing (``segment/chain_table``).
- *compaction*: neighbouring small segments become one (``compaction/merge``), paced in bounded steps
  (``columnar/pacing``).
- *base snapshot*: the oldest segment: what was held where the window begins. An expired segment is folded into it
  (``compaction/fold``); what stays is its *live operations* (``compaction/live_operations``).
- *low watermark*: the first position that can be asked about, ``SegmentStore.edge``; it rises as time and bytes run
  out (``segment_store``, ``retention``).
- *tombstone*: a removal is one for a copy; a *reset* (a clear, a restart, a hole) is one for every block of a stream
  at once (``residency/resets``).
- *Bloom filter*: proves that a run does not name a key (``columnar/bloom_filter``). At most one absent key in 300
  passes, of digests one in 1,200.
- *bucket index*: where each stretch of a sorted column's value range begins: a sparse index
  (``columnar/bucket_index``).
- *secondary index*: rows of the chain table by token digest (``columnar/hash_index``).
- *pruning*: leaves out the segments and runs that filters and ordinals prove to say nothing (``segment/pruning``).
- *point lookup*: one block at a position (``SegmentStore.first_of``, ``residency/copies_of_one``); of many blocks at
  once, ``SegmentStore.as_of`` and ``residency/copies``.
- *negative lookup*: proves from Bloom filters alone that no event named a block (``query/never_named``).
- *read-your-writes*: a question about a position first flushes the memtable if that holds events before it
  (``stream``).
- *resident*, *evicted*, *ambiguous*: surely a copy is held, surely none, or not known (``residency/copies``).
- *holder*: another stream whose record says that it holds a block, or held it (``Ledger.holders``).
- *children*: blocks stored under a parent (``query/children``). *Sibling*: another child of it, and the chain below
  that (``query/siblings``). *Equal-token blocks*: the same tokens from block 0 on under other keys
  (``query/same_tokens``).
- *re-announcement*: a store that repeats what is resident; it counts no copy (``memtable/reannouncements``).

Write path:

1. ``decode/batch`` reads a message into a batch of ``events``; ``hashing`` digests token ids and extra keys on the way.
2. ``ledger`` finds the stream; ``sequencer`` puts its batches in order, and makes a hole of what stays missing.
3. ``stream`` takes the batch into the memtable, and its time into ``time_index``.
4. ``memtable/segment_builder`` flushes the memtable: a sorted run a place, and a chain table, are a segment.
5. ``segment_store`` appends the segment; ``compaction/merge`` makes one of small neighbours.
6. ``retention`` expires segments by age and bytes; ``compaction/fold`` folds them into the base snapshot.

Read path:

1. ``ledger`` finds the stream; ``time_index`` turns the lookup's time into a position.
2. ``stream`` flushes the memtable if the position needs it (read-your-writes).
3. ``segment/pruning`` names the runs whose Bloom filters may hold the keys; ``query/never_named`` ends here.
4. ``segment/operations`` joins the keys with each run, through its bucket index.
5. ``residency/copies`` counts stores and removals since the last reset (``residency/resets``), up to the position.
6. ``residency/facts`` makes facts of the counts when they are looked at. Longer questions: ``query/``.
"""
