"""The same arithmetic with a calculator: a tool of its own, and a reward without tests."""

from __future__ import annotations

import ast
import json
import operator
import random
from collections.abc import Callable
from typing import Any, ClassVar

from arithmetic import answer_of, is_right, reward_of

from whetstone.core.problem import Problem
from whetstone.core.syntax import NotPython, parse_expression
from whetstone.environments.conversation import Reply
from whetstone.environments.episode import Episode
from whetstone.environments.prompt import Prompt
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.single_turn import Outcome
from whetstone.environments.tool import Tool, ToolError, ToolSession
from whetstone.environments.tools import ToolUse

# In characters. It bounds the cost of a call, and the size of its result.
LONGEST_EXPRESSION = 200
# The share of demonstrations that answer at once, so that RL can improve the model.
WITHOUT_CALL = 0.5

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class Calculator(Tool):
    """Computes with whole numbers."""

    name = "calculator"
    description = "Returns the value of an expression with whole numbers, +, -, * and parentheses."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
        "additionalProperties": False,
    }

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        expression: str = arguments["expression"]
        if len(expression) > LONGEST_EXPRESSION:
            raise ToolError(f"the expression has more than {LONGEST_EXPRESSION} characters")
        try:
            return str(_value(parse_expression(expression)))
        except NotPython:
            raise ToolError("this is not an expression") from None


def _value(node: ast.expr) -> int:
    """Return the value of a parsed expression. Raises ToolError for anything but the three operations."""
    match node:
        case ast.Constant(value=number) if type(number) is int:
            return number
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(left), _value(right))
        case _:
            raise ToolError("only whole numbers, +, -, * and parentheses are allowed")


class ArithmeticTools(ToolUse):
    """Replies with calls of tools, then an answer, which is rewarded as in ``Arithmetic``."""

    def prompt(self, problem: Problem) -> Prompt | None:
        """See Environment. A prompt without a chat does not describe the tools: a model from scratch learns
        the calls from demonstrations."""
        return super().prompt(problem) if self.settings.chat else prompt_of(problem, self.settings)

    def check(self, problem: Problem) -> None:
        """See Environment."""
        answer_of(problem)

    def demonstration(self, problem: Problem, rng: random.Random) -> list[tuple[str, str]] | None:
        """See Environment. The tool is ``calculator``."""
        answer = answer_of(problem)
        if rng.random() < WITHOUT_CALL:
            return [("assistant", answer)]
        call = json.dumps({"name": Calculator.name, "arguments": {"expression": problem.statement}})
        return [("assistant", f"<tool_call>\n{call}\n</tool_call>"), ("tool", answer), ("assistant", answer)]

    async def score(self, episode: Episode, reply: Reply) -> Outcome:
        """See SingleTurn."""
        accepted = is_right(episode.problem, reply)
        return Outcome(reward=reward_of(accepted), accepted=accepted)
