"""How a problem is put to a model, and how a reply is read and rewarded."""

from __future__ import annotations

from typing import Literal

from whetstone.judge.extract import ExtractionRule
from whetstone.settings import Count, Section


class WorkflowSection(Section):
    """How a problem becomes a prompt, and a reply a program and a reward.

    chat: use the tokenizer's chat template; otherwise ``prompt`` is the whole text.
    prompt: user text. Filled in are ``{problem}``, the statement and below it the code to start from, where a
        problem has such code; ``{statement}`` and ``{starter}``, each by itself; ``{instruction}``, how the
        tests will call the program.
    prefix: text that the assistant's reply starts with (given, not sampled); ``{starter}`` is filled in.
    answer_format: ``plain``, or ``think_answer``: <think>…</think> then <answer>…</answer>.
    extraction: where the program stands in the reply; see ``whetstone.judge.extract``.
    reward: ``all`` is 1 for an accepted program and 0 otherwise; ``fraction`` is the share of cases passed.
    """

    chat: bool = True
    system: str | None = None
    prompt: str = "{problem}\n\n{instruction}"
    prefix: str = ""
    answer_format: Literal["plain", "think_answer"] = "plain"
    extraction: ExtractionRule = "program"
    reward: Literal["all", "fraction"] = "all"
    max_prompt_tokens: Count = 1024
