"""Similarity of two problems: words of their statements, cases of their tests, their programs."""
