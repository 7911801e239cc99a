"""Tools for tests, and calls as a model writes them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, ClassVar

from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.tool import Tool, ToolError, ToolFault, ToolSession


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """A call in the tags of Qwen."""
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


class Tally(Tool):
    """Adds numbers up, in each episode on its own. It notes which sessions were closed."""

    name = "tally"
    description = "Adds a number to the total."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    }
    events: ClassVar[Counter[str]] = Counter()

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        if "total" not in session.state:
            session.state["total"] = 0
            self.events["opened"] += 1
            session.resources.callback(self.events.update, ["closed"])
        await asyncio.sleep(0)
        session.state["total"] += arguments["number"]
        return f"total {session.state['total']}"

    async def close(self) -> None:
        self.events["tool closed"] += 1


class Odd(Tool):
    """Fails as its argument says."""

    name = "odd"
    description = "Fails."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"how": {"type": "string"}}}
    timeout_s = 0.05

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        session.resources.callback(Tally.events.update, ["closed"])
        how = arguments.get("how")
        if how == "error":
            raise ToolError("not this way")
        if how == "fault":
            raise ToolFault("the tool is broken")
        if how == "hang":
            await asyncio.sleep(3600)
        if how == "long":
            return "a" * 3000 + "z" * 3000
        if how == "surrogate":
            return "x\ud800y"
        raise ZeroDivisionError("a defect of the tool")


TEMPLATE = {
    "start_anchor": "[assistant]",
    "defaults": {"role": "assistant"},
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "content": {},
        "tool_calls": {
            "open": "[CALL]",
            "close": "[END]",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}


def tokenizer_with(template: Any) -> Any:
    tokenizer = build_tokenizer(["x"], 300)
    tokenizer.response_template = template
    return tokenizer
