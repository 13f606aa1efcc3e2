"""Questions beyond one block's residency: chains, children, siblings, equal-token blocks, negative lookups."""
