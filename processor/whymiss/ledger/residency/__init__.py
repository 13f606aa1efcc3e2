"""From a block's operations to its state: copies counted between resets, and the facts that say so."""
