"""The packages that Python programs may import: where they lie, what is loaded ahead, what is missing."""
