"""Judge assert tests that cannot use the proxy: program and test in one interpreter. The judgement is marked.

In one interpreter, a program can reach the expected values of the test and forge its outcome. So this is done
only if a reference of the problem fails the unit through the proxy and passes it in one interpreter. The
problem alone decides it; the program under test has no influence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from whetstone.core.problem import Problem
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.languages.table import is_python
from whetstone.judge.outcome import case, compile_failure, crashed, limit_exceeded, run_limits
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import WireError, decode, encode
from whetstone.sandbox import RunResult

Accepts = Callable[[str], bool]

_VERDICTS = {
    "failed": Verdict.WRONG_ANSWER,
    # The reference passes, so the test code is correct: the program manipulated it.
    "broken": Verdict.WRONG_ANSWER,
    "raised": Verdict.RUNTIME_ERROR,
    "missing": Verdict.RUNTIME_ERROR,
}
_MAX_DECISIONS = 4096
# The decisions of this worker on units of problems.
_decisions: dict[tuple[bytes, int], bool] = {}


def needs_one_interpreter(problem: Problem, number: int, apart: Accepts, shared: Accepts) -> bool:
    """Return whether unit ``number`` of the problem's tests must be judged in one interpreter.

    ``apart`` and ``shared`` return whether a source passes in two processes and in one. Raises SandboxFault.
    """
    key = (_fingerprint(problem), number)
    if key not in _decisions:
        references = [r.source for r in problem.references if is_python(r.language)]
        # The reference must fail twice through the proxy, because the machine may cause one failure.
        found = any(not apart(s) and shared(s) and not apart(s) for s in references)
        while len(_decisions) >= _MAX_DECISIONS:
            del _decisions[next(iter(_decisions))]
        _decisions[key] = found
    return _decisions[key]


def _fingerprint(problem: Problem) -> bytes:
    """Return a digest of all that the decision depends on."""
    parts = [problem.tests, problem.statement, problem.starter, problem.references, problem.limits]
    encoded = msgspec.msgpack.encode(parts)
    return blake2b(encoded, digest_size=16).digest()


def judge_shared(sandboxes: SandboxSet, problem: Problem, unit: dict[str, Any], source: str) -> CaseJudgement:
    """Run a unit and ``source`` in one interpreter. Raises SandboxFault."""
    limits = problem.limits
    # The result must contain this token. A program that only writes an outcome and exits is not believed.
    token = os.urandom(16)
    payload = encode([token, source, unit])
    sandbox = sandboxes.python(SandboxRole.SHARED, source, unit["setup"], unit["code"])
    job = harness_job(
        "shared_interpreter", payload, run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb)
    )
    judged = _judgement(sandbox.run(job), token)
    return msgspec.structs.replace(judged, shared_interpreter=True)


def _judgement(result: RunResult, token: bytes) -> CaseJudgement:
    failed = limit_exceeded(result)
    if failed is None and (why := compile_failure(result.result)):
        return case(result, Verdict.COMPILE_ERROR, why)
    failed = failed or crashed(result)
    if failed is not None:
        return failed
    try:
        outcome = decode(result.result)
    except WireError:
        outcome = None
    match outcome:
        case [bytes() as returned, "passed", str()] if returned == token:
            return case(result, Verdict.ACCEPTED)
        case [bytes() as returned, str() as status, str() as reason] if (
            returned == token and status in _VERDICTS
        ):
            memory = status == "raised" and reason.startswith("MemoryError")
            return case(result, Verdict.MEMORY_LIMIT if memory else _VERDICTS[status], reason)
        case _:
            return case(result, Verdict.RUNTIME_ERROR, "the program ended before its tests")
