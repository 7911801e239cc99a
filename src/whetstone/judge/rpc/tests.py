"""In the test process: run units of test code, one after the other, against a program in another process.

Outcomes are written at once to this process's own result descriptor, which the program cannot reach; see
``result_recorder``. A unit passes only if it ran completely and the program then answered once more.

Statuses:

- ``passed``
- ``failed``: an assertion of the test failed
- ``unusable``: a value of the program made the test raise
- ``raised``: an exception of the program reached the test
- ``missing``: a function is not defined
- ``gone``: the link broke
- ``differs``: the program did not repeat the messages of the run that a time limit stopped
- ``broken``: the test code itself is defective
- ``spoiled``: the test code failed like a defective one, after the program had influenced it
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

from whetstone.judge.rpc.compiling import HOOK, TestCodeError, compile_test_code
from whetstone.judge.rpc.files import SharedFiles
from whetstone.judge.rpc.link import LinkLost
from whetstone.judge.rpc.loading import describe
from whetstone.judge.rpc.proxy import Peer
from whetstone.judge.rpc.result_recorder import ResultRecorder
from whetstone.judge.rpc.test_code import failed_line, run_tests

_MODULE = "__test__"
_PARTS = {"<setup>": "setup", "<test>": "code"}
# A request while one of these propagates is no sign of a failure.
_NO_FAILURES = (StopIteration, StopAsyncIteration, GeneratorExit, ImportError, unittest.SkipTest, LinkLost)


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the units and write their outcomes."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    run_units(payload, result_fd, link_fd)
    os._exit(0)


def run_units(payload: bytes, result_fd: int, link_fd: int) -> None:
    """Run the units and write their outcomes, without leaving the process.

    The payload comes from the judge and is marshalled. It contains the units, each with its code if that is
    compiled already, and the summary of the program's messages in an earlier run.
    """
    recorder = ResultRecorder(result_fd)
    peer = Peer(link_fd, _MODULE)
    units, expected = marshal.loads(payload)
    recorder.record_start()
    greeting: list[Any] = []
    for unit, codes in units:
        peer.on_request = partial(_record_failure, peer, recorder, unit)
        try:
            codes = codes or [
                compile_test_code(unit[part], name, hooks=True) for name, part in _PARTS.items()
            ]
            greeting = greeting or peer.link.receive_greeting()
            peer.messages.begin(expected)
            outcome = _run_unit(peer, unit, greeting, codes, recorder)
            # Test code may have caught the exception.
            if peer.link.lost:
                raise LinkLost(peer.link.lost)
            if outcome[0] == "passed" and peer.messages.is_incomplete():
                outcome = ["differs", ""]
        except TestCodeError as error:
            # A program that was only asked for its names had no influence on the test code.
            outcome = ["broken" if peer.request_count < 2 else "spoiled", str(error)[:300]]
        except LinkLost as error:
            # The recorded failure is the outcome of the unit.
            if recorder.pending:
                break
            recorder.record_messages(peer.messages.summary())
            outcome = ["differs" if peer.messages.differs else "gone", str(error)]
        except BaseException as error:
            # Outside of test code, only a malformed answer of the program can raise an exception.
            outcome = ["unusable", describe(error)]
        recorder.record_unit(outcome, peer.strained or peer.link.was_incomplete)
        if peer.link.lost:
            break
        expected = None
        peer.begin_unit()


def _record_failure(
    peer: Peer, recorder: ResultRecorder, unit: dict[str, Any], error: BaseException | None
) -> None:
    """Record the failure that the program could learn of by the next request."""
    if error is None or (isinstance(error, _NO_FAILURES) and not peer.exceptions.is_from_program(error)):
        if peer.caught is None:
            recorder.withdraw_failure()
    elif not recorder.pending:
        # The text of the exception is not recorded, because creating it might send a request to the program.
        recorder.record_failure(_status(peer, error), failed_line(error, unit["code"]))


def _run_unit(
    peer: Peer, unit: dict[str, Any], greeting: list[Any], codes: list[Any], recorder: ResultRecorder
) -> list[str]:
    if greeting[0] != "loaded":
        return ["raised", str(greeting[-1])]
    if unit["files"] is not None and peer.files is None:
        root = os.getcwd()
        peer.files = SharedFiles(root, os.listdir(root), unit["files"])
    if unit["captures"] and peer.output is None:
        peer.output = sys.stdout
        peer.fetch_output()
    if unit["seeds"]:
        # The test's seeds apply to the program too, which has random generators of its own.
        modules: list[Any] = [importlib.import_module("random"), sys.modules.get("numpy.random")]
        for module in modules:
            if module is not None and not isinstance(module.seed, partial):
                module.seed = partial(_seed, peer, module.__name__, module.seed)
    scope = _create_scope(peer, unit)
    entry = unit["entry_point"]
    if entry and entry not in scope:
        return ["missing", f"the program defines no `{entry}`"]
    try:
        scope[HOOK] = recorder.set_evaluating
        for code in codes:
            exec(code, scope)
        outcome = run_tests(unit, scope, _MODULE, partial(_explain_in_unittest, peer, unit, recorder))
    except (LinkLost, TestCodeError):
        raise
    except BaseException as error:
        outcome = _explain(peer, error, unit)
    # A failed unit needs no further evidence of the program.
    if outcome[0] != "passed":
        return outcome
    if peer.caught is None:
        nonce = os.urandom(8)
        if peer.ask("ping", nonce) != nonce:
            raise LinkLost("a wrong answer to a ping")
    if peer.caught is not None:
        return ["failed", f"the program caught a failed assertion: {peer.caught}"[:300]]
    return outcome


def _seed(peer: Peer, module: str, seed: Callable[..., None], *value: Any) -> None:
    seed(*value)
    peer.ask("seed", module, *value)


def _explain_in_unittest(
    peer: Peer, unit: dict[str, Any], recorder: ResultRecorder, error: BaseException
) -> list[str]:
    # After a failure, the code of a test class (tearDown, cleanups) would tell the program of it.
    peer.on_request(error)
    recorder.finalize_failure()
    return _explain(peer, error, unit)


def _create_scope(peer: Peer, unit: dict[str, Any]) -> dict[str, Any]:
    """Return the test's globals: proxies for the program's names, and modules imported here."""
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    scope = module.__dict__
    scope["__builtins__"] = __builtins__
    scope.update(peer.fetch_names(unit["names"], unit["classes"]))
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
    if isinstance(error, ImportError) and not peer.exceptions.is_from_program(error):
        return ["broken" if _imported_by_test(error, unit) else "spoiled", describe(error)]
    status = _status(peer, error)
    if status == "failed":
        return [status, str(error)[:300] or failed_line(error, unit["code"])]
    return [status, describe(error)]


def _status(peer: Peer, error: BaseException) -> str:
    """Return the status for an exception of the test code."""
    if peer.exceptions.is_from_program(error):
        return "raised"
    if isinstance(error, TestCodeError):
        return "broken"
    if isinstance(error, AssertionError):
        return "failed"
    return "missing" if isinstance(error, NameError) else "unusable"


def _imported_by_test(error: ImportError, unit: dict[str, Any]) -> bool:
    """Return whether an import statement of the test code raised it, independent of the program."""
    place, line, frame = "", 0, error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if name in _PARTS:
            place, line = name, frame.tb_lineno
        frame = frame.tb_next
    statements = ast.walk(ast.parse(unit[_PARTS[place]])) if place else ()
    imports = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in imports)
