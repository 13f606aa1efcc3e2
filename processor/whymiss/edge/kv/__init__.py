"""KV-cache events: who publishes them, how they are followed, who says nothing."""
