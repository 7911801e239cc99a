"""The step ``strengthen`` of pipelines (``whetstone data build``)."""

from __future__ import annotations

from whetstone.data.pipeline import StepPlugin
from whetstone_curation.strengthen.strengthener import Effort


def _run(source: str, out: str, effort: Effort, workers: int) -> None:
    """Strengthen a set, as the command does without an endpoint."""
    from whetstone.cli.data_steps import StepFiles
    from whetstone.cli.judge_options import JudgeMachine
    from whetstone.evaluate.replies.settings import EndpointSettings
    from whetstone_curation.commands.strengthen import strengthen
    from whetstone_curation.model_writing import GeneratorReplies

    files = StepFiles(set=source, out=out, replace=True)
    strengthen(files, effort, GeneratorReplies(), EndpointSettings(), JudgeMachine(workers=workers))


STEP = StepPlugin(Effort, _run)
