"""Each family of models writes thinking and tool calls in its own way, and all are read alike.

The replies are in the TOML file. The tokenizers have the tokens of the family's own, and a small chat
template with its marks.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.beside import data_beside
from tests.environments.agents import Played, Plays, group_of, user
from tests.environments.scripted import played
from tests.environments.test_tools import PROBLEM, RIGHT, TALLY, FakeJudge, section
from tests.environments.tools_of_tests import TEMPLATE
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling, read_settings
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.loading import LoadedModel
from whetstone.engine.scratch import build_tokenizer
from whetstone.engine.settings import ModelSection
from whetstone.environments.conversation import Reply
from whetstone.environments.formats.family import FAMILIES, family_of, use_chat_settings
from whetstone.environments.formats.reading import Reading, ReplyFormat, read_plain
from whetstone.environments.prompt import Prompt, render_prompt
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import open_environment
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import program_of
from whetstone.environments.tool_calls import calls_of
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import SampleResult
from whetstone.run.initial_model import with_chat_settings

ROWS: dict[str, dict[str, Any]] = data_beside(__file__)
ROWS = {name: {**ROWS.get(row.get("like", ""), {}), **row} for name, row in ROWS.items()}
SETTINGS = EnvironmentSection()
RUN = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Runs code.",
        "parameters": {"type": "object", "properties": {"code": {"type": "string"}}},
    },
}
PROMPT = Prompt("Say it.", "", chat=True, tools=[RUN])


@cache
def tokenizer_of(name: str) -> Any:
    row = ROWS[name]
    tokenizer = build_tokenizer(["def f(x):\n    return x"], 300)
    tokenizer.add_tokens(row.get("special", []), special_tokens=True)
    tokenizer.add_tokens(row.get("added", []))
    tokenizer.chat_template = row["turns"]
    use_chat_settings(tokenizer, name if row.get("named") else "", row.get("arguments", {}))
    return tokenizer


def encoded(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a reply; those of what stands in «…» are of single letters."""
    ids: list[int] = []
    for number, part in enumerate(re.split("[«»]", text)):
        for piece in part if number % 2 else [part]:
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return ids


def written(row: dict[str, Any], kind: str) -> str:
    programs = {"DRAFT": "```python\nprint('draft')\n```\n", "FINAL": "```python\nprint('final')\n```\n"}
    return re.sub("DRAFT|FINAL", lambda found: f"\n{programs[found[0]]}", row[kind])


def read(name: str, text: str, prompt: Prompt = PROMPT) -> Reading:
    tokenizer = tokenizer_of(name)
    return ReplyFormat(tokenizer).read(encoded(tokenizer, text), prompt, render_prompt(prompt, tokenizer))


def as_text(name: str, text: str) -> Reading:
    """The reply as a server sends it that keeps special tokens."""
    opened = render_prompt(PROMPT, tokenizer_of(name)).rstrip().endswith("<think>")
    return read_plain(FAMILIES[name], re.sub("[«»]", "", text), opened=opened)


def program_in(found: Reading) -> str | None:
    return program_of(PROBLEM, SETTINGS, found.text)


def calls_in(found: Reading) -> list[tuple[str, Any]]:
    reply = Reply(0, found.text, "stop", tool_calls=found.calls)
    return [(call.name, call.error or call.arguments) for call in calls_of(reply)]


def test_every_family_has_replies_here_and_is_found_by_its_chat_template() -> None:
    assert ROWS.keys() == FAMILIES.keys()
    for name in ROWS:
        assert family_of(tokenizer_of(name)).name == name


@pytest.mark.parametrize("name", ROWS)
def test_a_thought_with_a_draft_is_no_answer(name: str) -> None:
    text = written(ROWS[name], "thought")
    for found in (read(name, text), as_text(name, text)):
        assert (program_in(found) or "").strip() == "print('final')"
        assert "draft" in found.text.partition("</think>")[0]
    tokens = read(name, text).thinking_tokens
    tokenizer = tokenizer_of(name)
    ids = encoded(tokenizer, text)
    assert 0 < (tokens or 0) < len(ids)
    thinking = tokenizer.decode(ids[:tokens])
    assert "draft" in thinking
    assert "final')" not in thinking


@pytest.mark.parametrize("name", ROWS)
def test_a_reply_that_was_cut_in_its_thinking_has_no_program(name: str) -> None:
    text = written(ROWS[name], "cut")
    found = read(name, text)
    assert program_in(found) is None
    assert found.thinking_tokens == len(encoded(tokenizer_of(name), text))
    if "«" not in text:
        assert program_in(as_text(name, text)) is None


@pytest.mark.parametrize("name", ROWS)
def test_calls_are_found_in_the_form_of_the_family(name: str) -> None:
    row = ROWS[name]
    first, second = (("run", {"code": f"print({number})"}) for number in (1, 2))
    for reader in (read, as_text):
        assert calls_in(reader(name, row["call"])) == [first]
        assert calls_in(reader(name, row["calls"])) == [first, second]
    shown = read(name, row["call"])
    if shown.calls:
        assert shown.text.count("<tool_call>\n{") == 1
    # A call in a thought that does not end is none. A call of gpt-oss ends the message before it.
    if shown.calls is not None and name != "gpt_oss":
        assert calls_in(read(name, written(row, "cut") + row["calls"].removeprefix("</think>"))) == []


@pytest.mark.parametrize("name", ROWS)
def test_a_call_may_hold_code_with_the_closing_mark(name: str) -> None:
    row = ROWS[name]
    assert calls_in(read(name, row["closing"])) == [("run", {"code": row["closing_code"]})]


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.calls])
def test_a_call_that_cannot_be_read_is_an_error_for_the_model(name: str) -> None:
    family = FAMILIES[name]
    assert family.calls is not None
    [(_, error)] = calls_in(read(name, f"</think>{family.calls.open}{family.calls.close}"))
    assert "cannot be read" in error


@pytest.mark.parametrize("name", ROWS)
def test_marks_of_other_families_open_no_answer(name: str) -> None:
    """A model that is cut in its thinking gains nothing by the marks with which others end theirs."""
    cut = written(ROWS[name], "cut")
    own = FAMILIES[name].thinking[1]
    for other in FAMILIES.values():
        channels = other.channels
        marks = [
            other.thinking[1],
            *([] if channels is None else [f"{channels.channel}final{channels.message}"]),
        ]
        for mark in marks:
            if mark != own and name != other.name:
                program = "\n```python\nprint('draft')\n```\n"
                assert program_in(read(name, f"{cut}\n«{mark}»{program}")) is None, mark


PIECES = [
    *{mark for each in FAMILIES.values() for mark in (*each.thinking, *each.drop, *each.ends)},
    *{mark for each in FAMILIES.values() if each.calls for mark in each.calls.marks()},
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "assistant", "final", "analysis"),
    *("\n```python\nprint('draft')\n```\n", "print('draft')", "\n", "`", "```", "<answer>", "</answer>"),
    *('{"name": "run", "arguments": {}}', "run", '{"code": "1"}', "<function=run>", "</function>", "\ufdd1"),
]


@pytest.mark.parametrize("name", ROWS)
def test_a_search_finds_no_text_that_ends_the_thinking_of_a_family(name: str) -> None:
    """Whatever a model writes in its thinking before the mark that ends it: no program, and no calls."""
    rng = random.Random(name)
    row, family = ROWS[name], FAMILIES[name]
    opening = written(row, "cut").partition("\n\n```python")[0].partition("```python")[0]
    tokens = {*row.get("special", []), *row.get("added", [])}
    for _ in range(150):
        pieces = rng.choices(PIECES, k=rng.randint(1, 12))
        text = "".join(f"«{piece}»" if piece in tokens else piece for piece in pieces)
        # A mark that is no special token ends the thinking in any tokens.
        if family.thinking[1] not in row.get("special", []) and family.channels is None:
            text = text.replace(family.thinking[1], "")
        found = read(name, opening + text)
        assert program_in(found) is None, pieces
        assert calls_in(found) == [], pieces


def test_a_prefix_that_begins_the_thinking_is_part_of_it() -> None:
    prompt = Prompt("Say it.", "[THINK]", chat=True)
    cut = read("magistral", "\n```python\nprint('draft')\n```\n", prompt)
    settings = EnvironmentSection(prefix="[THINK]")
    assert program_of(PROBLEM, settings, cut.text) is None
    done = read("magistral", "hm[/THINK]\n```python\nprint('final')\n```\n", prompt)
    assert (program_of(PROBLEM, settings, done.text) or "").strip() == "print('final')"


def test_thinking_marks_that_are_special_tokens_are_seen_in_every_family() -> None:
    tokenizer: Any = build_tokenizer(["x"], 300)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=True)
    tokenizer.chat_template = ROWS["generic"]["turns"]
    reader = ReplyFormat(tokenizer)
    text = "<think>\n```python\nprint('draft')\n```\n"
    assert program_in(reader.read(tokenizer.encode(text), PROMPT, "")) is None
    assert program_in(reader.read(encoded(tokenizer, f"{text}«</think>»{text}"), PROMPT, "")) is None


def test_the_thinking_of_a_response_template_is_used() -> None:
    tokenizer: Any = build_tokenizer(["x"], 300)
    tokenizer.chat_template = ROWS["generic"]["turns"]
    thinking = {"open": "[BEGIN]", "close": "[DONE]"}
    fields: Any = TEMPLATE["fields"]
    tokenizer.response_template = {**TEMPLATE, "fields": {**fields, "thinking": thinking}}
    reader = ReplyFormat(tokenizer)
    draft, final = (f"\n```python\nprint('{each}')\n```\n" for each in ("draft", "final"))
    for text, expected in [
        (f"[BEGIN]{draft}[DONE]{final}", "print('final')"),
        (f"[BEGIN]{draft}", None),
        # What the template does not read ends no thinking.
        (f"[BEGIN]so </think>{draft}", None),
        (f"[BEGIN]<think>hm</think>{draft}[DONE]{final}", "print('final')"),
        ("[BEGIN]" * 3000 + draft, None),
        (f"[BEGIN]{draft}" + "[CALL]" * 3000, None),
        (f"[BEGIN]{draft}[DONE][CALL]{{", None),
    ]:
        program = program_in(reader.read(tokenizer.encode(text), PROMPT, "[assistant]"))
        assert (program.strip() if program else None) == expected


def test_arguments_reach_the_chat_template_and_unknown_ones_are_refused() -> None:
    tokenizer: Any = build_tokenizer(["x"], 300)
    tokenizer.chat_template = ROWS["qwen3"]["turns"]
    assert not render_prompt(PROMPT, tokenizer).endswith("</think>\n\n")
    use_chat_settings(tokenizer, "", {"enable_thinking": False})
    assert render_prompt(PROMPT, tokenizer).endswith("</think>\n\n")
    with pytest.raises(UserError, match="did you mean `enable_thinking`"):
        use_chat_settings(tokenizer, "", {"enable_thinkin": False})
    with pytest.raises(UserError, match="did you mean `qwen3`"):
        use_chat_settings(tokenizer, "qwen", {})


def test_a_recipe_sets_the_format_and_the_arguments_of_its_model() -> None:
    tokenizer: Any = build_tokenizer(["x"], 300)
    tokenizer.chat_template = ROWS["qwen3"]["turns"]
    values = {"path": "m", "format": "openthoughts", "template_arguments": {"enable_thinking": False}}
    model = with_chat_settings(LoadedModel(None, tokenizer, "m"), read_settings(ModelSection, values))
    assert family_of(model.tokenizer).name == "openthoughts"
    assert render_prompt(PROMPT, model.tokenizer).endswith("</think>\n\n")
    # What a checkpoint saves is the tokenizer without them.
    assert "whetstone" not in json.dumps(tokenizer.init_kwargs, default=str)


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    page = page.replace("\\|", "¦")
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    for name, family in FAMILIES.items():
        marks = [*family.thinking, *family.arguments, *(family.calls.marks()[:1] if family.calls else ())]
        marks = [*([] if family.channels else marks), family.models]
        assert [mark for mark in marks if mark.replace("|", "¦") not in rows[name]] == []


class Family:
    """An engine that plays one reply after the other, with the tokenizer of a family."""

    version = 1

    def __init__(self, name: str, replies: list[str]) -> None:
        self.tokenizer = tokenizer_of(name)
        self.replies = iter(replies)
        self.prompts: list[str] = []

    def check(self, request: GenerationRequest) -> None:
        pass

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.prompts.append(self.tokenizer.decode(request.prompt_ids))
        await asyncio.sleep(0)
        ids = encoded(self.tokenizer, next(self.replies))
        yield Completion(0, ids, [-1.0] * len(ids), [1] * len(ids), "stop")


DIFFERENT = ["gpt_oss", "gemma4", "glm4", "magistral", "deepseek_v31", "minimax_m2", "lfm2"]


def tally_call(name: str) -> str:
    """The call of the row, as one of the tool that adds up."""
    text = ROWS[name]["call"].replace("run", "tally").replace("I tally", "I run").replace("code", "number")
    text = text.replace('"print(1)"', "5").replace("print(1)", "5")
    return text.replace('<|"|>', "") if name == "gemma4" else text


def right(name: str) -> str:
    text = ROWS[name]["thought"]
    return re.sub(r"\s*FINAL\s*", RIGHT, text.replace("DRAFT", "I think"))


@pytest.mark.parametrize("name", DIFFERENT)
def test_an_episode_with_tools_plays_in_training_and_in_evaluation(name: str) -> None:
    said = [tally_call(name), right(name)]
    settings = section(TALLY)
    engine = Family(name, said)

    async def train() -> Any:
        async with open_environment(settings) as environment:
            tokenizer = tokenizer_of(name)
            return await played(environment, engine, PROBLEM, judge=FakeJudge(), tokenizer=tokenizer)

    sample = asyncio.run(train()).samples[0]
    assert (sample.reward, sample.metrics["turns"]) == (1.0, 2.0)
    assert "total 5" in engine.prompts[1]
    measured: Any = Family(name, said)
    found: list[SampleResult] = []

    async def measure() -> None:
        plan = SamplingPlan(n=1, max_tokens=64)
        replies = EngineReplies(measured, tokenizer_of(name), plan, max_prompt_tokens=9999)
        async with open_environment(settings) as environment:
            writer = EngineWriter(replies)
            await evaluate([PROBLEM], writer, environment, FakeJudge(), plan, record=found.append)

    asyncio.run(measure())
    assert measured.prompts == engine.prompts
    assert [(each.text, each.reward) for each in found] == [(sample.text, 1.0)]


@pytest.mark.process
@pytest.mark.parametrize("name", DIFFERENT)
def test_an_agent_gets_the_calls_and_the_thinking_of_each_family(name: str) -> None:
    async def agent(agent: Played) -> float:
        first = [user("a")]
        message = (await agent.create(*first, tools=[RUN])).choices[0].message
        [call] = message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("run", {"code": "print(1)"})
        assert "print" not in (message.content or "")
        result = {"role": "tool", "content": "it ran", "tool_call_id": call.id}
        again = [*first, message.model_dump(exclude_none=True), result]
        last = (await agent.create(*again, tools=[RUN])).choices[0].message
        assert last.content.strip() == RIGHT
        assert last.reasoning_content.strip() in ("I think", "thought\nI think")
        return 1.0

    environment = Plays(agent)
    engine = Family(name, [ROWS[name]["call"], right(name)])
    params = Sampling(max_tokens=400)
    group = asyncio.run(group_of(environment, engine, tokenizer=tokenizer_of(name), params=params))
    assert not environment.errors
    assert [sample.reward for sample in group.samples] == [1.0]
    assert "it ran" in engine.prompts[1]
