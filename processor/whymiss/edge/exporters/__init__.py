"""Queues, retries and transports towards the destinations."""
