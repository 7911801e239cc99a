"""Demonstrations of an environment, as the texts that a policy reads and writes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.environments.environment import Environment
from whetstone.environments.prompt import Message, Prompt, Tokenizer, next_turn, render_prompt

Turns = list[tuple[str, str]]
"""The replies of an episode, each after the text that the model reads since its last reply."""


def demonstrations(
    environment: Environment, problems: Sequence[Problem], tokenizer: Tokenizer, seed: int
) -> Iterator[Turns]:
    """Yield demonstrations without end: of each problem in turn, in a new order in each round.

    ``tokenizer`` is only used for chat templates. Raises UserError if no problem has a demonstration.
    """
    rng = random.Random(f"demonstrations-{seed}")
    found = False
    while True:
        for problem in rng.sample(problems, len(problems)):
            prompt, dialogue = environment.prompt(problem), environment.demonstration(problem, rng)
            if prompt is not None and dialogue is not None:
                found = True
                yield turns_of(prompt, dialogue, tokenizer)
        if not found:
            raise UserError(
                f"`warmup.writes: demonstrations`: the environment `{type(environment).__name__}` has no "
                "demonstration for any problem of `data.train`; define its method `demonstration`, or "
                "remove `warmup.writes`"
            )


def turns_of(prompt: Prompt, dialogue: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> Turns:
    """Return the replies of a dialogue, each after the text before it, as a rollout gives it to the model.

    Raises ValueError unless the dialogue begins and ends with a reply of the assistant, and has other
    messages between two of them.
    """
    turns: Turns = []
    messages: list[Message] = []
    wrong = not dialogue or dialogue[-1][0] != "assistant"
    for role, text in dialogue:
        if role != "assistant":
            messages.append({"role": role, "content": text})
            continue
        wrong |= bool(messages) != bool(turns)
        given = next_turn(prompt, messages, tokenizer) if turns else render_prompt(prompt, tokenizer)
        turns.append((given, text))
        messages = []
    if wrong:
        raise ValueError(
            "a demonstration begins and ends with a reply of the assistant, and has other messages between "
            f"two replies; this one has the roles {', '.join(role for role, _ in dialogue) or 'no role'}"
        )
    return turns


def encode_turns(turns: Turns, tokenizer: Any) -> Iterator[tuple[list[int], list[int]]]:
    """Yield for each reply all tokens before it, as a rollout has them, and its own with the end token.

    ``tokenizer`` is a Hugging Face tokenizer without a chat template: its end token occurs in no text.
    """
    context: list[int] = []
    for given, reply in turns:
        # Encoded separately: no token of a rollout spans the border.
        context = [*context, *tokenizer.encode(given, add_special_tokens=False)]
        ids = [*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id]
        yield context, ids
        context = [*context, *ids]
