"""What a verifier is paid for, and what it is not; what the coder is told; what both are trained on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.environments.scripted import TOKENIZER, Says
from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Limits,
    Problem,
    Program,
    StdinCase,
    StdinTests,
)
from whetstone.core.sample import Group
from whetstone.core.settings import Sampling, read_settings
from whetstone.environments.generated_cases import (
    InvalidCases,
    contains_example,
    read_cases,
    without_examples,
)
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import RolloutRequest, run_groups
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge import AsyncJudge

DOUBLE, SQUARE = "def f(x):\n    return 2 * x\n", "def f(x):\n    return x * x\n"
SLOW = "def f(x):\n    while x > 10 ** 6: pass\n    return {}\n"
PROBLEM = Problem(
    "double",
    "Twice the number.\n\nExample:\nf(21) = 42\n\nNote: it is an integer.",
    CallTests([CallCase(2 * x, [x]) for x in (0, 5, -3)], "f"),
    limits=Limits(cpu_s=0.5, memory_mb=256, output_mb=1),
    references=[Program("python", DOUBLE)],
    wrong=[Program("python", SQUARE)],
)


def cases(*pairs: tuple[Any, Any]) -> str:
    return json.dumps({"inputs": [[given] for given, _ in pairs], "outputs": [out for _, out in pairs]})


GOOD, TOOTHLESS, WRONG = cases((3, 6)), cases((2, 4)), cases((3, 7))
EPISODES = [
    # The coder's program, the verifier's reply, what it is paid, whether the coder tries again.
    (DOUBLE, GOOD, 1.0, False),
    (DOUBLE, f"I think.\n```json\n{GOOD}\n```\nSo it is.", 1.0, False),
    (DOUBLE, TOOTHLESS, 0.5, False),  # approves what is right, and would approve what is wrong
    (SQUARE, GOOD, 1.0, True),
    (SQUARE, TOOTHLESS, 0.5, False),
    (SQUARE, WRONG, 0.0, False),  # refuses what is wrong, by a case that is wrong itself
    (DOUBLE, WRONG, 0.0, False),
    (SQUARE, cases((None, 3)), 0.0, False),  # the reference fails
    (SLOW.format("2 * x"), cases((10**7, 2 * 10**7)), 0.5, False),  # only times out what is right
    (SLOW.format("x * x"), cases((10**7, 2 * 10**7)), 0.5, False),  # only times out what is wrong
    (SQUARE, cases((21, 42)), 0.0, False),  # the statement's example
    (SQUARE, cases((3, 6), (3, 6)), 0.0, False),  # another number of cases
    (SQUARE, "It is wrong, trust me.", 0.0, False),
    (SQUARE, '{"inputs": [[3]], "outputs": [NaN]}', 0.0, False),
    (SQUARE, '{"inputs": [["\\ud800"]], "outputs": [6]}', 0.0, False),
    (SQUARE, '{"inputs": [' + "[" * 5000, 0.0, False),
    (SQUARE, cases(("9" * 400, "9" * 800)), 0.0, False),  # too large
]


def drawn(
    episodes: list[tuple[str, str]], problem: Problem = PROBLEM, retry: str = DOUBLE, **options: Any
) -> tuple[dict[str, Group], Says, Says]:
    """The groups of episodes in which both say what they are given, under the real judge."""
    section = EnvironmentSection.model_validate(
        {
            "kind": "codegen_verifier",
            "prompt": "{problem}",
            "extraction": "whole",
            "options": {"cases": 1, "max_bytes": 600, **options},
        }
    )
    # A comment tells the verifier's script which episode it is asked in.
    programs = [f"{program}# episode {index}\n" for index, (program, _) in enumerate(episodes)]
    coder = Says(lambda text, index: retry if "fails these tests" in text else programs[index])
    verifier = Says(lambda text, _: episodes[int(text.rpartition("# episode ")[2].split()[0])][1])

    async def run() -> dict[str, Group]:
        async with AsyncJudge(1, stop_at_first_failure=True) as judge:
            replies = {
                name: EngineReplies(engine, TOKENIZER, Sampling(max_tokens=64), max_prompt_tokens=9999)  # pyright: ignore
                for name, engine in (("coder", coder), ("verifier", verifier))
            }
            request = RolloutRequest(replies, judge, len(episodes), seed=4)
            return await run_groups(section.build(), problem, request)

    return asyncio.run(run()), coder, verifier


@pytest.mark.process
def test_a_verifier_is_paid_for_valid_cases_that_tell_right_from_wrong() -> None:
    groups, _, verifier = drawn([(program, reply) for program, reply, _, _ in EPISODES])
    paid = [sample.reward for sample in groups["verifier"].samples]
    assert paid == [reward for _, _, reward, _ in EPISODES]
    retries = [place for place, (*_, again) in enumerate(EPISODES) if again]
    assert len(groups["coder"].samples) == len(EPISODES) + len(retries)
    assert [s.reward for s in groups["coder"].samples if s.prompt_ids] == [1.0] * len(retries)
    # Each verifier's sample answers the prompt that shows the program of its episode, without the example.
    for index, sample in enumerate(groups["verifier"].samples):
        asked = TOKENIZER.decode(sample.prompt_ids)
        assert asked in verifier.asked
        assert f"# episode {index}\n" in asked
        assert "42" not in asked
        assert "integer" in asked


@pytest.mark.process
def test_valid_cases_that_tell_nothing_need_not_be_paid() -> None:
    groups, _, _ = drawn([(program, reply) for program, reply, _, _ in EPISODES], valid_pays=0.0)
    paid = [sample.reward for sample in groups["verifier"].samples]
    assert paid == [float(reward == 1.0) for _, _, reward, _ in EPISODES]


@pytest.mark.process
def test_the_coder_is_told_generated_cases_after_exactly_the_tokens_that_it_wrote() -> None:
    groups, coder, _ = drawn([(SQUARE, GOOD), (SQUARE, GOOD)])
    first, retry = groups["coder"].samples[:2]
    assert retry.prompt_ids[: len(first.response_ids) + len(groups["coder"].prompt_ids)] == [
        *groups["coder"].prompt_ids,
        *first.response_ids,
    ]
    said = TOKENIZER.decode(retry.prompt_ids)
    assert said in coder.asked
    assert "Input: [3]\nExpected: 6\nResult: wrong answer" in said
    assert (first.metrics, retry.metrics) == ({"first_accepted": 0.0}, {"retry_accepted": 1.0})
    assert not retry.given


@pytest.mark.process
def test_programs_that_never_ran_are_not_verified_and_an_unknown_reference_pays_nobody() -> None:
    groups, _, verifier = drawn([("def f(x:", GOOD), ("def f(", GOOD)])
    assert not verifier.asked
    assert [s.reward for s in groups["verifier"].samples] == [None]
    # A reference that fails the real tests validates nothing: neither 0 nor 1 is known.
    unknown = replace(PROBLEM, references=[Program("python", SQUARE)])
    groups, *_ = drawn([(DOUBLE, GOOD), (SQUARE, WRONG)], unknown)
    assert [s.reward for s in groups["verifier"].samples] == [None, None]


@pytest.mark.process
def test_astraflow_v2_pays_the_verifier_for_the_coders_skill() -> None:
    """Right final program, and valid cases, one each; invalid cases that refuse make the coder try again."""
    episodes = [(DOUBLE, GOOD), (DOUBLE, WRONG), (SQUARE, GOOD), (SQUARE, TOOTHLESS)]
    groups, *_ = drawn(episodes, variant="astraflow_v2", retry=SQUARE)
    assert [s.reward for s in groups["verifier"].samples] == [2.0, 0.0, 1.0, 1.0]
    assert len([s for s in groups["coder"].samples if s.prompt_ids]) == 2


STDIN = Problem("s", "Sum.", StdinTests([StdinCase("1 2\n", "3\n")]))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.lists(_JSON, max_size=2) | _JSON, _JSON), max_size=3), st.text(max_size=20))
@example([([None], None), ([None, {"𐀀" * 25: None}], None)], "")
def test_what_is_read_from_any_reply_is_bounded_and_distinct(
    pairs: list[tuple[Any, Any]], noise: str
) -> None:
    block = {"cases": [{"input": given, "output": out} for given, out in pairs]}
    for problem in (STDIN, PROBLEM):
        for text in (noise, noise + json.dumps(block) + noise, json.dumps(block)[:-3]):
            try:
                tests = read_cases(text, problem, count=2, most_bytes=300)
            except InvalidCases:
                continue
            inputs = [
                case.input if isinstance(case, StdinCase) else json.dumps(case.args, ensure_ascii=False)
                for case in tests.cases
            ]
            assert len(set(inputs)) == len(tests.cases) == 2
            assert sum(len(text.encode()) for text in inputs) <= 300
            assert type(tests) is type(problem.tests)


@pytest.mark.parametrize(
    ("given_", "expected", "shown"),
    [("3\n1 2 3\n", "6\n", True), ([1, 2, 3], 6, False), ("1 2\n", "6", False), ("3\n1 2 4\n", "7\n", False)],
)
def test_a_case_that_copies_an_example_is_known(given_: Any, expected: Any, shown: bool) -> None:
    statement = "Add them.\n\nSample Input 1\n```\n3\n1 2 3\n```\nSample Output 1\n```\n6\n```\n"
    assert contains_example(statement, given_, expected) is shown
    assert not contains_example("Add the 3 numbers 1 2 3, which is not 6.", given_, expected)


def test_examples_are_taken_out_of_a_statement_and_the_rest_stays() -> None:
    text = (
        "Add.\n\n**Example 1:**\nInput: 1 2\nOutput: 3\n\n**Constraints:**\n- small\n\n## Sample Input\n1\n"
    )
    assert without_examples(text) == "Add.\n\n**Constraints:**\n- small"
    assert without_examples("Examples\n1 2") == "Examples\n1 2"


def test_problems_and_options_that_cannot_be_are_refused() -> None:
    section = read_settings(EnvironmentSection, {"kind": "codegen_verifier"})
    environment = section.build()
    with pytest.raises(UserError, match="needs a reference; leave such problems out"):
        environment.check(STDIN)
    with pytest.raises(UserError, match="needs tests of kind `stdin`"):
        environment.check(
            Problem("a", "s", AssertTests(asserts=["assert f()"]), references=[Program("python", "")])
        )
    for options, words in [
        ({"cases": 0}, "`options.cases`: Input should be greater than or equal to 1"),
        ({"variant": "v2"}, "`options.variant`: Input should be 'v3' or 'astraflow_v2'"),
        ({"variant": "astraflow_v2", "valid_pays": 0.0}, "`valid_pays` needs `variant: v3`"),
        ({"prompt": "Write tests."}, "must contain `.statement.`"),
    ]:
        with pytest.raises(UserError, match=words):
            read_settings(EnvironmentSection, {"kind": "codegen_verifier", "options": options})
