"""Workflows by name: those that ship, or a user's own."""

from __future__ import annotations

from typing import cast

from whetstone.workflow.codegen_verifier import CodegenVerifier
from whetstone.workflow.episode import ProgramJudge, Workflow
from whetstone.workflow.own import own_workflow
from whetstone.workflow.repair import Repair
from whetstone.workflow.settings import WorkflowSection
from whetstone.workflow.shipped import SINGLE_TURN, RepairOptions, VerifierOptions
from whetstone.workflow.single_turn import SingleTurn


def build_workflow(settings: WorkflowSection, judge: ProgramJudge) -> Workflow:
    """The workflow of ``settings``, made by ``kind(settings, judge, **options)``.

    Training, evaluation and the checks before a run all come here, so that they ask and judge alike.
    """
    match settings.shipped_options:
        case RepairOptions() as options:
            return Repair(settings, judge, options)
        case VerifierOptions() as options:
            return CodegenVerifier(settings, judge, options)
        case _ if settings.kind == SINGLE_TURN:
            return SingleTurn(settings, judge)
        case _:
            pass
    own = own_workflow(settings.kind, settings.options)
    return cast("Workflow", own(settings, judge, **settings.options))
