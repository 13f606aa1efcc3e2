"""Logs, metrics and probes: what the service says of itself."""
