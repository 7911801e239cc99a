"""Assert tests that cannot work through the proxy: program and test in one interpreter, marked as such.

In one interpreter a program can reach the test's expected values and forge its outcome. So this is done
only where it must be, which the problem alone decides: one of its references fails the unit through the
proxy, and passes it in one interpreter. Nothing that the program under test does can bring that about.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.outcome import case, compile_failure, crashed, limit_exceeded, run_limits
from whetstone.judge.values import WireError, decode, encode
from whetstone.problem import Problem
from whetstone.sandbox import RunResult
from whetstone.verdict import CaseJudgement, Verdict

Accepts = Callable[[str], bool]

_VERDICTS = {
    "failed": Verdict.WRONG_ANSWER,
    # The test code is not broken, for the reference passes it: the program tampered with it.
    "broken": Verdict.WRONG_ANSWER,
    "raised": Verdict.RUNTIME_ERROR,
    "missing": Verdict.RUNTIME_ERROR,
}
_MAX_KNOWN = 4096
# What was found out about a unit of a problem, in this worker.
_needed: dict[tuple[bytes, int], bool] = {}


def needs_one_interpreter(problem: Problem, number: int, proxied: Accepts, shared: Accepts) -> bool:
    """Whether unit ``number`` of the problem's tests is to be judged in one interpreter.

    ``proxied`` and ``shared`` say whether a source passes either way. Raises SandboxFault.
    """
    key = (_fingerprint(problem), number)
    if key not in _needed:
        references = [r.source for r in problem.references if r.language == "python"]
        # Twice: one failure through the proxy may be the machine's.
        found = any(not proxied(s) and shared(s) and not proxied(s) for s in references)
        while len(_needed) >= _MAX_KNOWN:
            del _needed[next(iter(_needed))]
        _needed[key] = found
    return _needed[key]


def _fingerprint(problem: Problem) -> bytes:
    """What the answer depends on: tests, the names they use, references and limits."""
    parts = [problem.tests, problem.statement, problem.starter, problem.references, problem.limits]
    encoded = msgspec.msgpack.encode(parts)
    return blake2b(encoded, digest_size=16).digest()


def judge_shared(boxes: Boxes, problem: Problem, unit: dict[str, Any], source: str) -> CaseJudgement:
    """Run a unit and ``source`` in one interpreter. Raises SandboxFault."""
    limits = problem.limits
    number = os.urandom(16)
    payload = encode([number, source, unit])
    sandbox = boxes.python(Side.SHARED, source, unit["setup"], unit["code"])
    job = harness_job("shared", payload, run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb))
    judged = _judgement(sandbox.run(job), number)
    return msgspec.structs.replace(judged, shared_interpreter=True)


def _judgement(result: RunResult, number: bytes) -> CaseJudgement:
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
        case [bytes() as drawn, "passed", str()] if drawn == number:
            return case(result, Verdict.ACCEPTED)
        case [bytes() as drawn, str() as status, str() as reason] if drawn == number and status in _VERDICTS:
            memory = status == "raised" and reason.startswith("MemoryError")
            return case(result, Verdict.MEMORY_LIMIT if memory else _VERDICTS[status], reason)
        case _:
            return case(result, Verdict.RUNTIME_ERROR, "the program ended before its tests did")
