"""The packages that Python programs may import: where they are, which are preloaded, which are missing."""
