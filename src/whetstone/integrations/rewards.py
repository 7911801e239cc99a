"""The core of all adapters: it turns a reply and its problem into a reward.

A reply goes through the configured environment as in a Whetstone run, so the same program is extracted and
gets the same verdict. Nothing starts before the first reply. The judge's workers are then started as new
interpreters, not forked, so they do not contain the trainer's memory (torch, CUDA context, threads). The
kernel ends them with the trainer.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from msgspec import Struct

from whetstone.core.closing import Closing
from whetstone.core.errors import UserError
from whetstone.core.optional_packages import installed_comparisons
from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement, Verdict
from whetstone.environments.conversation import Conversation, Reply, ReplyLimits
from whetstone.environments.episode import Episode, KnownReply
from whetstone.environments.feedback import feedback
from whetstone.environments.formats.family import THINK
from whetstone.environments.prompt import Message, Prompt
from whetstone.integrations.rows import problem_of, reply_text
from whetstone.integrations.settings import RewardSettings, reward_settings
from whetstone.judge import Judge

_LOG = logging.getLogger(__name__)


class AnyJudge(Protocol):
    """What rewards need of a judge: ``Judge``, ``JudgeClient``, or a judge of another project."""

    @property
    def minimum_tier(self) -> str:
        """The weakest isolation that programs may run with."""
        ...

    def submit(self, problem: Problem, program: Program, **options: Any) -> Future[Judgement]:
        """Begin a judgement; ``cancel`` stops it."""
        ...

    def worker_pids(self) -> list[int]:
        """Return the ids of the worker processes."""
        ...

    def close(self) -> None:
        """Stop all processes."""
        ...


class NoReward(UserError):
    """A reply has no verdict, and the trainer does not support a missing reward."""


class ScoredReply(Struct, frozen=True):
    """A reply's reward and judgement.

    ``reward`` is None if there is no verdict that counts, and ``judgement`` if the environment does not judge
    programs.
    """

    problem: Problem
    reward: float | None
    judgement: Judgement | None
    program: str | None
    accepted: bool | None = None

    @property
    def solved(self) -> bool:
        """Whether the reply is right."""
        if self.accepted is not None:
            return self.accepted
        return self.judgement is not None and self.judgement.accepted

    @property
    def explanation(self) -> str:
        """The verdict, and which of the tests that ran failed. A model may read it: it contains no text of a
        test."""
        if self.judgement is None:
            return "the environment does not judge programs"
        verdict = self.judgement.verdict.value
        if self.judgement.accepted:
            return verdict
        return f"{verdict}: {feedback(self.judgement)}".replace("\n", " ")


class Rewards(Closing):
    """Scores replies with one set of settings. Thread-safe, usable from any event loop and in forked
    processes.

    It can be pickled: a copy has the same settings and starts its own workers.
    """

    def __init__(self, settings: RewardSettings | None = None, judge: AnyJudge | None = None) -> None:
        """``judge``: a running judge to use instead of a new one. It is not closed."""
        self.settings = settings or RewardSettings()
        self._given_judge = judge
        self._episodes = _Episodes(self.settings, judge)
        _ALL.add(self)

    def submit(self, reply: str, problem: object) -> Future[ScoredReply]:
        """Score one reply to a problem (see ``rows.problem_of``); ``cancel`` on the future stops judging.

        Raises UserError for an invalid problem or a reply that is not a text. The future raises UserError
        for a problem that cannot be judged here, and SandboxUnavailable if this machine cannot isolate as
        requested.
        """
        if not isinstance(reply, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(f"a reply is a {type(reply).__name__}; expected a text")
        episodes = self._episodes
        return asyncio.run_coroutine_threadsafe(episodes.score(reply, problem_of(problem)), episodes.loop())

    def score(self, replies: Sequence[str], problems: Sequence[object]) -> list[ScoredReply]:
        """Score replies, each to its problem, and wait for all. Raises as ``submit`` does."""
        if len(replies) != len(problems):
            raise UserError(f"{len(replies)} replies and {len(problems)} problems; each reply needs one")
        futures = list[Future[ScoredReply]]()
        try:
            for pair in zip(replies, problems, strict=True):
                futures.append(self.submit(*pair))
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    async def scored(self, reply: str, problem: object) -> ScoredReply:
        """Score one reply, for coroutines of any event loop."""
        return await asyncio.wrap_future(self.submit(reply, problem))

    def number(self, scored: ScoredReply) -> float:
        """Return the reward as a number: ``no_reward`` if it is missing. Raises NoReward if that is not
        set."""
        reward = self.settings.no_reward if scored.reward is None else scored.reward
        if reward is None:
            raise NoReward(_no_reward_message(scored))
        return reward

    async def told(self, reply: object, problem: object) -> dict[str, Any]:
        """Return the reward, the verdict and the explanation of a reply, for a client that may be an agent.

        Raises NoReward if there is no reward. The client reads its message, and that of another error could
        contain a value of the tests, so other errors are only in the log.
        """
        try:
            scored = await self.scored(reply_text(reply), problem)
        except Exception:
            _LOG.exception("a reply could not be scored")
            raise NoReward("the reply could not be scored; the log of the server says why") from None
        verdict = "" if scored.judgement is None else scored.judgement.verdict.value
        return {"reward": self.number(scored), "verdict": verdict, "explanation": scored.explanation}

    def worker_pids(self) -> list[int]:
        """Return the process ids of the judge's running workers; empty before the first reply."""
        return self._episodes.worker_pids()

    def close(self) -> None:
        """Stop the judge's workers. Pending replies are cancelled; a later reply starts new workers."""
        episodes, self._episodes = self._episodes, _Episodes(self.settings, self._given_judge)
        episodes.close()

    def reset_after_fork(self) -> None:
        """In a forked process: drop the workers, thread and loop, which belong to the parent."""
        self._episodes = _Episodes(self.settings, self._given_judge)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rewards, (self.settings,)


class _GivenReply:
    """The model of an episode whose reply is given: it cannot be sampled, so the episode ends with it."""

    async def begin(
        self, problem: Problem, prompt: Prompt, *, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], Reply]:
        """See ModelClient. Raises UserError."""
        raise UserError("this environment samples a model itself, so it cannot reward single replies")

    async def reply_to(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        seed: int,
        limits: ReplyLimits | None = None,
    ) -> tuple[list[int], Reply] | None:
        """See ModelClient. There is no further reply."""
        return None


class _AsyncJudge:
    """Adapts a judge to the asynchronous interface of episodes."""

    def __init__(self, judge: AnyJudge) -> None:
        self.judge_itself = judge

    @property
    def minimum_tier(self) -> str:
        """The weakest isolation that programs may run with."""
        return self.judge_itself.minimum_tier

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        """Return the verdict on one program; cancelling the await stops it."""
        return await asyncio.wrap_future(self.judge_itself.submit(problem, program, **options))


class _Episodes:
    """An event loop in its own thread that scores replies; the judge starts with the first reply."""

    def __init__(self, settings: RewardSettings, judge: AnyJudge | None) -> None:
        self._settings = settings
        self._judge, self._owns_judge = judge, judge is None
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="whetstone-reward", daemon=True).start()
            return self._loop

    async def score(self, reply: str, problem: Problem) -> ScoredReply:
        """Run one episode, starting from the reply."""
        settings = self._settings
        if self._judge is None:  # blocks only this loop, which is idle before the first reply
            self._judge = _judge(settings)
        opened = THINK if settings.thinking_opened else ""
        environment = settings.environment.build()
        prompt = environment.prompt(problem)
        if prompt is None:
            raise UserError("this environment begins without a prompt, so it cannot reward single replies")
        options: dict[str, Any] = {"max_cases": settings.judge.max_cases} if settings.judge.max_cases else {}
        episode = Episode(
            problem,
            {environment.models[0]: _GivenReply()},
            _AsyncJudge(self._judge),
            first=KnownReply(prompt, Reply(0, opened + reply, "stop")),
            options=options,
        )
        rollout = await environment.rollout(problem, episode)
        [sample] = rollout.samples[environment.models[0]]
        return ScoredReply(problem, sample.reward, sample.judgement, sample.program, sample.accepted)

    def worker_pids(self) -> list[int]:
        """See ``Rewards``."""
        return self._judge.worker_pids() if self._judge else []

    def close(self) -> None:
        """Stop judge and loop."""
        with self._starting:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._cancel_tasks(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
        if self._judge is not None and self._owns_judge:
            self._judge.close()

    async def _cancel_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _judge(settings: RewardSettings) -> AnyJudge:
    """Return the judge that a Whetstone run with these settings would use."""
    options: dict[str, Any] = {
        "stop_at_first_failure": not settings.environment.needs_all_cases,
        **settings.judge.for_judge(),
    }
    if settings.judge.url:
        from whetstone.service.client import JudgeClient  # needs an HTTP client

        return JudgeClient(settings.judge.url, **options)
    ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    workers = settings.judge.workers or max(1, len(os.sched_getaffinity(0)) // ranks)
    return Judge(workers, comparisons=installed_comparisons(), **options)


def _no_reward_message(scored: ScoredReply) -> str:
    """Return why there is no reward. A model may read it: the judge's reason, which may quote a test, is only
    in the log."""
    problem, judgement = scored.problem.id, scored.judgement
    if judgement is None:
        cause = f"the environment gives no reward for a reply to problem {problem!r}"
    elif judgement.verdict is Verdict.JUDGE_ERROR:
        _LOG.error("the judge failed on a reply to problem %r: %s", problem, judgement.reason)
        cause = f"the judge failed on a reply to problem {problem!r} (the log of this process says why)"
    else:
        cause = (
            f"a program could forge the verdicts of problem {problem!r}, whose tests must run in its "
            "process; leave it out (`whetstone data validate` does), or set judge.score_shared_interpreter"
        )
    return (
        f"{cause}. This trainer does not support a missing reward, and 0 would be a verdict, so it stops "
        "here; set no_reward=NUMBER to continue with that number instead"
    )


def reward(replies: Sequence[str], problems: Sequence[object], **settings: Any) -> list[float | None]:
    """Return the rewards of replies, each to its problem; None if there is no verdict that counts.

    ``settings`` are those of ``RewardSettings``. The first call with given settings starts a judge, which
    later calls reuse.
    """
    return [scored.reward for scored in shared(settings).score(replies, problems)]


def shared(options: dict[str, Any]) -> Rewards:
    """Return this process's ``Rewards`` object for these settings. Raises UserError."""
    settings = reward_settings(options)
    key = settings.model_dump_json()
    # `setdefault` is atomic. A lock could be held by another thread when this process is forked.
    return _shared.get(key) or _shared.setdefault(key, Rewards(settings))


_ALL: weakref.WeakSet[Rewards] = weakref.WeakSet()
_shared: dict[str, Rewards] = {}
"""The objects of ``shared``, by their settings as JSON."""


def _reset_all_after_fork() -> None:
    for rewards in _ALL:
        rewards.reset_after_fork()


def _close_all() -> None:
    for rewards in list(_ALL):
        rewards.close()


os.register_at_fork(after_in_child=_reset_all_after_fork)
atexit.register(_close_all)
