"""The graders of published benchmarks: their rules for replies, and their comparisons.

Whetstone finds this package through its entry points and imports nothing from it. ``COMPARISONS`` is for
judges that are made in Python: ``Judge(comparisons=COMPARISONS)``.
"""

COMPARISONS = ("whetstone_graders.comparisons",)
"""The names of the modules that hold the comparisons of these graders."""
