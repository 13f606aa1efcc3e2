"""From a publisher's bytes to a batch of events: msgpack in, columns of block keys and digests out."""
