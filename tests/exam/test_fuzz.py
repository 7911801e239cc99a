"""The link's protocol spoken by hostile programs that are drawn at random, to real testing processes."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from whetstone.cli.main import main
from whetstone.core.errors import SandboxUnavailable
from whetstone.judge.kinds.assert_calls import Plain
from whetstone.judge.kinds.assert_conversation import AssertConversation
from whetstone.judge.rpc.link import mutables
from whetstone.judge.rpc.program_messages import without_addresses
from whetstone.judge.values import encode
from whetstone.sandbox import Sandbox, Tier
from whetstone_exam.fuzz import asked_fuzz
from whetstone_exam.fuzz.fuzz import FUZZERS, fuzz
from whetstone_exam.fuzz.hostile import _name_of
from whetstone_exam.fuzz.link_fuzz import (
    LinkSession,
    PropertyViolation,
    run_session,
    run_sessions,
    sandboxes_for_tests,
)

pytestmark = pytest.mark.process

SEEDS = st.integers(0, 1 << 32)
_opened = ExitStack()
_boxes: list[Sandbox] = []


@pytest.fixture(scope="module", autouse=True)
def boxes() -> Iterator[list[Sandbox]]:
    with _opened:
        _boxes[:] = _opened.enter_context(sandboxes_for_tests())
        yield _boxes
        _boxes.clear()


class HostileProgram(RuleBasedStateMachine):
    """A program that writes anything at any time; ``LinkSession`` checks what must hold at every step."""

    session: LinkSession | None = None

    @precondition(lambda self: not self.alive())
    @rule(seed=SEEDS)
    def begins(self, seed: int) -> None:
        self.teardown()
        self.session = LinkSession(_boxes, Random(seed))

    def alive(self) -> bool:
        return self.session is not None and self.session.alive

    def can_ask(self) -> bool:
        program = self.session.program if self.session is not None else None
        return self.alive() and program is not None and bool(program.functions or program.objects)

    def said(self, seed: int, what: str) -> None:
        assert self.session is not None
        program = self.session.program
        program.rng = Random(seed)
        self.session.send(getattr(program, what)())

    @precondition(alive)
    @rule(seed=SEEDS)
    def replies(self, seed: int) -> None:
        self.said(seed, "reply")

    @precondition(alive)
    @rule(seed=SEEDS)
    def answers_in_short(self, seed: int) -> None:
        self.said(seed, "shortest_reply")

    @precondition(can_ask)
    @rule(seed=SEEDS)
    def asks(self, seed: int) -> None:
        self.said(seed, "request")

    @precondition(alive)
    @rule(seed=SEEDS, data=st.binary(max_size=40))
    def says_nonsense(self, seed: int, data: bytes) -> None:
        assert self.session is not None
        if seed % 8 == 0:  # it is the end
            self.session.send(data)

    def teardown(self) -> None:
        if self.session is not None:
            assert "passed" not in self.session.finish()


TestHostileProgram = HostileProgram.TestCase
TestHostileProgram.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
)


def test_a_judge_that_asks_tells_nothing_and_is_not_brought_down() -> None:
    assert {seed: failure for seed, failure in asked_fuzz.run_sessions(range(500)) if failure} == {}


@pytest.mark.parametrize("leak", ["tells", "accepts", "raises"])
def test_the_fuzzer_of_asserts_finds_planted_defects(leak: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, compared = AssertConversation._send, AssertConversation._finish_assert

    def tells(self: AssertConversation, request: bytes) -> None:
        ask(self, request + repr(self._current_assert().rule.expected).encode())

    def accepts(self: AssertConversation, now: Plain, *, right: bool, strained: bool) -> None:
        compared(self, now, right=right or strained, strained=strained)

    def raises(self: AssertConversation, request: bytes) -> None:
        raise ValueError(request)

    name = "_finish_assert" if leak == "accepts" else "_send"
    monkeypatch.setattr(
        AssertConversation, name, {"tells": tells, "accepts": accepts, "raises": raises}[leak]
    )
    assert any(failure for _, failure in asked_fuzz.run_sessions(range(500)))


FOUND_ONCE = (792508393,)
"""Seeds of sessions that found something: a mark of changed containers, given as a value, had an address."""


def test_sessions_drawn_from_a_seed_find_nothing(boxes: list[Sandbox]) -> None:
    for seed in (*FOUND_ONCE, *range(60)):
        run_session(LinkSession(boxes, Random(seed)))


def test_a_program_that_knows_the_secret_passes(boxes: list[Sandbox]) -> None:
    """So it is not for bad grammar that the others do not; and a session in which a test passes is found."""
    seed = next(seed for seed in range(1000) if Random(seed).randrange(16) == 0)
    session = LinkSession(boxes, Random(seed), secret_known=True)
    program = session.program
    program._violation_rate = 0.0
    while session.alive:
        request = program.unanswered.pop()
        known = program._valid_result(request) if request[0] in ("names", "ping") else session.secret
        session.send(b"!" + encode([["returned", known], len(mutables(request)), []], _name_of))
    assert session.finish() == ["passed", "passed"]
    assert session.test == 0


def test_a_difference_between_two_secrets_is_found(boxes: list[Sandbox]) -> None:
    session = LinkSession(boxes, Random(1))
    session.send(b"!" + encode([["returned", {}], 1, []]))
    session.alive = True
    session.finish()
    with pytest.raises(PropertyViolation, match="secrets or addresses"):
        session.check_equal([b"one", b"other"])


def test_the_doctor_fuzzes_and_names_its_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--attack", "--fuzz", "0.5", "--seed", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["held"]
    assert report["fuzzers"][0]["sessions"] >= 1

    def finding(seeds: Iterable[int], tier: str | None) -> Iterator[tuple[int, str]]:
        return ((seed, "a hole" if seed == 12 else "") for seed, _ in zip(seeds, range(5), strict=False))

    monkeypatch.setitem(FUZZERS, "link", finding)
    assert main(["doctor", "--attack", "--fuzz", "5", "--seed", "9"]) == 1
    assert "--seed 12: a hole" in capsys.readouterr().out
    assert main(["doctor", "--fuzz", "5"]) == 2


def test_addresses_of_earlier_objects_are_removed_from_messages() -> None:
    def loaded() -> None: ...

    gc.freeze()
    try:
        text = repr(loaded).encode()
        assert b" at 0x0000" in without_addresses(text)
        assert without_addresses(b"what lies at 0x1234567") == b"what lies at 0x1234567"
    finally:
        gc.unfreeze()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tier", [tier.label for tier in Tier])
def test_many_sessions_on_every_tier_find_nothing(tier: str) -> None:
    try:
        found = {seed: failure for seed, failure in run_sessions(range(10_000, 12_000), tier) if failure}
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))
    assert found == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_fuzzers_find_nothing_in_five_minutes() -> None:
    assert [(one.name, one.found) for one in fuzz(300.0, 50_000) if one.found] == []
