"""Sorted columns of 64-bit integers: sorting kernels, work in bounded steps, Bloom filters and indexes. Knows no block."""
