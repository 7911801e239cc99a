"""The step ``strengthen`` of pipelines (``whetstone data build``)."""

from __future__ import annotations

from whetstone.data.pipeline import StepPlugin
from whetstone_curation.strengthen.strengthener import Effort


def _run(source: str, out: str, effort: Effort, workers: int) -> None:
    """Strengthen a set, as the command does."""
    from whetstone.cli.data_steps import StepFiles
    from whetstone.cli.judge_options import JudgeMachine
    from whetstone_curation.commands.strengthen import strengthen

    files = StepFiles(set=source, out=out, replace=True)
    strengthen(files, effort, JudgeMachine(workers=workers))


STEP = StepPlugin(Effort, _run)
