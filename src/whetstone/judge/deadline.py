"""The judgement on a program whose deadline passed while it was judged.

The cause is what used more of the time until the deadline. If it is the program, its unfinished case is
TIME_LIMIT, and no other case is run. If it is the queue, or a machine that gave the program no core, the
missing cases are not judged. In both, cases that failed before count. A program cannot choose between the
two: all time that is not proved to be lost counts as the program's.
"""

from __future__ import annotations

from msgspec import Struct

from whetstone.core.verdict import CaseJudgement, Verdict


class DeadlinePassed(Struct, tag="deadline_passed", frozen=True):
    """A judgement is due now.

    ``queued_s``: seconds until a worker first got the program; ``worked_s``: seconds since then.
    """

    queued_s: float
    worked_s: float

    def is_of_program(self, waited_s: float) -> bool:
        """Return whether the program used at least half of the time. It waited ``waited_s`` for a core."""
        own_s = self.worked_s - waited_s
        return own_s >= self.queued_s + waited_s

    def unfinished_case(self, number: int) -> CaseJudgement:
        """Return the judgement on the case during which the deadline passed."""
        reason = f"the deadline passed after the program was judged for {self.worked_s:.1f} s"
        return CaseJudgement(Verdict.TIME_LIMIT, wall_s=self.worked_s, reason=reason, index=number)

    def why_unjudged(self, waited_s: float) -> str:
        """Return the reason for a judgement in which the program is not at fault."""
        return (
            f"not judged: its deadline passed after {self.queued_s:.1f} s in the queue and {waited_s:.1f} s "
            "of waiting for a core"
        )
