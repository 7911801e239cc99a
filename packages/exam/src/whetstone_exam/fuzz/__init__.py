"""Fuzzers: hostile programs without end, each from a seed that reproduces it."""
