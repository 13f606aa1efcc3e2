"""What is on disk before it is acknowledged, and comes back after a crash."""
