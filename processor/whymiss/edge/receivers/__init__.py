"""Requests by gRPC, by HTTP and from disk: how they come in, and what a sender is answered."""
