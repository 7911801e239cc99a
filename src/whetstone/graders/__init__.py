"""The graders that published figures come from: their rules for replies, and their comparisons.

Nothing that trains or judges imports this room. A judge that is to compare as one of these graders does is
given the names of the modules that say how: ``Judge(comparisons=COMPARISONS)``.
"""

COMPARISONS = ("whetstone.graders.comparisons",)
"""For ``Judge(comparisons=…)``: the modules that hold the comparisons of the graders."""
