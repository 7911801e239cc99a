"""In the testing process: run units of test code, one after the other, against a program in another process.

What happens goes out as it happens, through this process's own result descriptor, which the program cannot
reach: see ``record``. A unit has passed only when it ran to its end and the program answered once more.
Statuses: ``passed``; ``failed`` (the test's assertion); ``unusable`` (what the program gave made the test
raise); ``raised`` (an exception of the program's reached the test); ``missing`` (a function is not defined);
``gone`` (the link broke); ``differs`` (the program did not say again what it said before it was stopped);
``broken`` (the test code itself is); ``spoiled`` (the test code failed as a broken
one does, after the program had a say in it).
"""

from __future__ import annotations

import ast
import importlib
import marshal
import os
import sys
import unittest
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from whetstone.judge.harness.compiling import HOOK, TestCodeError, compiled
from whetstone.judge.harness.files import SharedFiles
from whetstone.judge.harness.link import LinkLost
from whetstone.judge.harness.loading import describe
from whetstone.judge.harness.proxy import Peer
from whetstone.judge.harness.record import Record
from whetstone.judge.harness.test_code import failed_line, ran_to_its_end, run_unittests, test_classes

_MODULE = "__test__"
_PARTS = {"<setup>": "setup", "<test>": "code"}
# In flight while the program is asked something, these say nothing against it.
_NO_FAILURES = (StopIteration, StopAsyncIteration, GeneratorExit, ImportError, unittest.SkipTest, LinkLost)


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the units and write their outcomes."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    run_units(payload, result_fd, link_fd)
    os._exit(0)


def run_units(payload: bytes, result_fd: int, link_fd: int) -> None:
    """The same, without leaving the process.

    The payload, the judge's own, is marshalled: units, each with its code where that is compiled already, and
    what the program said in an earlier run.
    """
    record = Record(result_fd)
    peer = Peer(link_fd, _MODULE)
    units, expected = marshal.loads(payload)
    record.begun()
    greeting: list[Any] = []
    for unit, codes in units:
        peer.failing = partial(_failing, peer, record, unit)
        try:
            codes = codes or [compiled(unit[part], name, hooks=True) for name, part in _PARTS.items()]
            greeting = greeting or peer.link.receive_greeting()
            peer.answered.begin(expected)
            outcome = _outcome(peer, unit, greeting, codes, record)
            if peer.link.lost:  # which test code may have swallowed
                raise LinkLost(peer.link.lost)
            if outcome[0] == "passed" and peer.answered.fell_short():
                outcome = ["differs", ""]
        except TestCodeError as error:
            # Only asked for its names, the program had no say in it.
            outcome = ["broken" if peer.asked < 2 else "spoiled", str(error)[:300]]
        except LinkLost as error:
            if record.pending:
                break  # that is its outcome
            record.answered(peer.answered.short())
            outcome = ["differs" if peer.answered.differs else "gone", str(error)]
        except BaseException as error:
            # Outside the unit itself only an odd answer of the program's can raise.
            outcome = ["unusable", describe(error)]
        record.unit(outcome, peer.strained)
        if peer.link.lost:
            break
        expected = None
        peer.begin_anew()


def _failing(peer: Peer, record: Record, unit: dict[str, Any], error: BaseException | None) -> None:
    """Before the program is told anything: put down what it could learn from that."""
    if error is None or (isinstance(error, _NO_FAILURES) and not peer.exceptions.raised(error)):
        if peer.caught is None:
            record.passed_over()
    elif not record.pending:
        # Without its text, for which the program might be asked.
        record.seen(_status(peer, error), failed_line(error, unit["code"]))


def _outcome(
    peer: Peer, unit: dict[str, Any], greeting: list[Any], codes: list[Any], record: Record
) -> list[str]:
    if greeting[0] != "loaded":
        return ["raised", str(greeting[-1])]
    if unit["files"] is not None and peer.files is None:
        root = os.getcwd()
        peer.files = SharedFiles(root, os.listdir(root), unit["files"])
    if unit["captures"] and peer.output is None:
        peer.output = sys.stdout
        peer.hear()
    if unit["seeds"]:
        _seed_both(peer)
    scope = _scope(peer, unit)
    entry = unit["entry_point"]
    if entry and entry not in scope:
        return ["missing", f"the program defines no `{entry}`"]
    try:
        scope[HOOK] = record.evaluating
        for code in codes:
            exec(code, scope)
        outcome = _run(peer, unit, scope, record)
    except (LinkLost, TestCodeError):
        raise
    except BaseException as error:
        outcome = _explain(peer, error, unit)
    if outcome[0] != "passed":
        return outcome  # nothing that the program still says could change it
    if peer.caught is None:
        nonce = os.urandom(8)
        if peer.ask("ping", nonce) != nonce:
            raise LinkLost("a wrong answer to a ping")
    if peer.caught is not None:
        return ["failed", f"the program caught a failed assertion: {peer.caught}"[:300]]
    return outcome


def _seed_both(peer: Peer) -> None:
    """Let the test's seeds be the program's too: it draws its numbers in a process of its own."""
    modules: list[Any] = [importlib.import_module("random"), sys.modules.get("numpy.random")]
    for module in modules:
        if module is not None and not isinstance(module.seed, partial):
            module.seed = partial(_seed, peer, module.__name__, module.seed)


def _seed(peer: Peer, module: str, seed: Callable[..., None], *value: Any) -> None:
    seed(*value)
    peer.ask("seed", module, *value)


def _run(peer: Peer, unit: dict[str, Any], scope: dict[str, Any], record: Record) -> list[str]:
    """What is left to do once the code was executed: nothing for plain asserts."""
    if unit["kind"] == "check":
        if "check" not in scope:
            raise TestCodeError("the test code defines no `check`")
        ran_to_its_end(scope["check"](scope[unit["entry_point"]]))
    if unit["kind"] == "unittest":

        def explain(error: BaseException) -> list[str]:
            # What a test class does after a failure (tearDown, cleanups) would tell the program of it.
            peer.failing(error)
            record.stands()
            return _explain(peer, error, unit)

        return run_unittests(test_classes(scope.values(), _MODULE), explain)
    return ["passed", ""]


def _scope(peer: Peer, unit: dict[str, Any]) -> dict[str, Any]:
    """The test's globals: stand-ins for the program's names, and modules imported here."""
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    scope = module.__dict__
    scope["__builtins__"] = __builtins__
    scope.update(peer.names(unit["names"], unit["classes"]))
    for name, (source, attribute) in unit["imports"].items():
        try:
            imported = importlib.import_module(source)
            scope[name] = getattr(imported, attribute) if attribute else imported
        except (ImportError, AttributeError) as error:
            raise TestCodeError(f"`{name}` cannot be imported for the test: {error}") from None
    if unit["entry_point"] in scope and "candidate" in unit["free"]:
        scope["candidate"] = scope[unit["entry_point"]]
    return scope


def _explain(peer: Peer, error: BaseException, unit: dict[str, Any]) -> list[str]:
    if isinstance(error, ImportError) and not peer.exceptions.raised(error):
        return ["broken" if _imported_by_test(error, unit) else "spoiled", describe(error)]
    status = _status(peer, error)
    if status == "failed":
        return [status, str(error)[:300] or failed_line(error, unit["code"])]
    return [status, describe(error)]


def _status(peer: Peer, error: BaseException) -> str:
    """What an exception of the test code means."""
    if peer.exceptions.raised(error):
        return "raised"
    if isinstance(error, AssertionError):
        return "failed"
    return "missing" if isinstance(error, NameError) else "unusable"


def _imported_by_test(error: ImportError, unit: dict[str, Any]) -> bool:
    """Whether an import statement of the test code raised it, in which the program has no say."""
    place, line, frame = "", 0, error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if name in _PARTS:
            place, line = name, frame.tb_lineno
        frame = frame.tb_next
    statements = ast.walk(ast.parse(unit[_PARTS[place]])) if place else ()
    imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in imports)
