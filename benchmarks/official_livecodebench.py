"""LiveCodeBench's own grader beside our `official` mode, over the same programs. See official.md.

    python benchmarks/official_livecodebench.py CHECKOUT --python VENV/bin/python

CHECKOUT holds ``lcb_runner`` (github.com/LiveCodeBench/LiveCodeBench); VENV has numpy and tqdm. Nothing of
theirs is copied: their ``run_test`` runs in processes of their Python, once for each program.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from official_compare import Trial, ours, report, theirs
from official_lcb_programs import CALL_PROGRAMS, CALL_WRAPPERS, STDIN_PROGRAMS, STDIN_WRAPPERS
from whetstone.core.problem import CallTests, Problem, StdinTests
from whetstone.data.dataset import load_problems
from whetstone.data.validate.mutants import mutants
from whetstone_graders import livecodebench
from whetstone_graders.form import OfficialForm

_THEIR_RUN = """
import json, os, select, sys
sys.path.insert(0, sys.argv[1])
out = os.fdopen(os.dup(1), "w")
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 1)
from lcb_runner.evaluation.testing_util import run_test
orders = [json.loads(line) for line in sys.stdin]
os.dup2(null, 0)
sys.stdin = open(os.devnull)
for order in orders:
    count = len(json.loads(order["sample"]["input_output"])["inputs"])
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            results, metadata = run_test(order["sample"], test=order["code"], timeout=6)
            good = bool(results) and len(results) == count and all(r is True or bool(r > 0) for r in results)
            answer = [good, str(metadata.get("error_message") or metadata.get("error") or "")[:200]]
        except BaseException as error:
            answer = [False, repr(error)[:200]]
        os.write(writes, json.dumps(answer).encode())
        os._exit(0)
    os.close(writes)
    ready = select.select([reads], [], [], 7 * count + 5)[0]
    if not ready:
        import signal, ctypes
        ctypes.CDLL(None).kill(child, signal.SIGKILL)
    data = os.read(reads, 1 << 16) if ready else b""
    os.waitpid(child, 0)
    os.close(reads)
    print(data.decode() or json.dumps([False, "its process ended or was ended"]), file=out, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", type=Path, required=True, help="the Python that runs their grader")
    parser.add_argument("--mutants", type=int, default=2, help="of each reference (default: 2)")
    parser.add_argument("--limit", type=int, default=0, help="only so many of the shipped problems")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    trials, orders = zip(*_programs(args.mutants, args.limit), strict=True)
    their = theirs(args.python, _THEIR_RUN, [str(args.checkout)], orders)
    report(trials, list(ours(trials, args.workers)), their)


def _programs(count: int, limit: int) -> Iterator[tuple[Trial, dict[str, Any]]]:
    shipped = [p for name in ("builtin:train", "builtin:heldout") for p in load_problems(name)]
    problems = [p for p in shipped if isinstance(p.tests, StdinTests | CallTests) and p.references]
    for number, problem in enumerate(problems[: limit or None]):
        form, sample = livecodebench.official_form(problem), _sample(problem)
        if form is None or sample is None:
            continue
        trial = partial(_trial, problem, form, sample)
        reference = problem.references[0].source
        yield trial("reference", "", reference)
        for wrong in problem.wrong:
            yield trial("known wrong", "", wrong.source)
        for mutant in mutants(reference, count, problem.id):
            yield trial("mutant", mutant.change, mutant.source)
        wrappers = STDIN_WRAPPERS if isinstance(problem.tests, StdinTests) else CALL_WRAPPERS
        names = list(wrappers)
        # Three of them for each problem, in turn: all of them for all would say little more.
        for name in {names[(3 * number + i) % len(names)] for i in range(3)}:
            function = problem.tests.function if isinstance(problem.tests, CallTests) else ""
            yield trial("odd answer", name, wrappers[name](reference, function or ""))
    yield from _own_programs()


def _trial(
    problem: Problem, form: OfficialForm, sample: dict[str, str], kind: str, what: str, code: str
) -> tuple[Trial, dict[str, Any]]:
    return Trial(f"{problem.id} {what}", kind, code, form), {"sample": sample, "code": code}


def _own_programs() -> Iterator[tuple[Trial, dict[str, Any]]]:
    for programs in (STDIN_PROGRAMS, CALL_PROGRAMS):
        for problem, kind, name, code in programs:
            form, sample = livecodebench.official_form(problem), _sample(problem)
            assert form is not None
            assert sample is not None
            yield _trial(problem, form, sample, kind, name, code)


def _sample(problem: Problem) -> dict[str, str] | None:
    """The problem in the grader's schema; None where its schema has no room for it."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        content: dict[str, Any] = {
            "inputs": [case.input for case in tests.cases],
            "outputs": [case.output for case in tests.cases],
        }
    elif isinstance(tests, CallTests) and tests.function and not any(case.kwargs for case in tests.cases):
        if not all(case.args for case in tests.cases):
            return None
        content = {
            "fn_name": tests.function,
            "inputs": ["\n".join(map(json.dumps, case.args)) for case in tests.cases],
            "outputs": [json.dumps(case.expected) for case in tests.cases],
        }
    else:
        return None
    return {"input_output": json.dumps(content)}


if __name__ == "__main__":
    main()
