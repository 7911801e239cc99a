"""The comparisons of published graders, by the modes that name them."""

from __future__ import annotations

from whetstone.judge.answers.comparisons import Comparison
from whetstone_graders.texts import compare_lcb, compare_scalebox
from whetstone_graders.values import ORACLES, EvalplusValues, lcb_equal

COMPARISONS = {
    "grader:lcb": Comparison(texts=compare_lcb, values=lambda _: lcb_equal),
    "grader:scalebox": Comparison(texts=compare_scalebox),
    "grader:evalplus": Comparison(
        values=lambda compare: EvalplusValues(compare.abs or 0.0, compare.oracle), oracles=ORACLES
    ),
}
