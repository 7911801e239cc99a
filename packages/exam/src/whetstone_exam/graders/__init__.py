"""Graders of other projects for ``whetstone exam``: thin functions over their installed packages."""
