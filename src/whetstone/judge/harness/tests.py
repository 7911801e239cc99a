"""In the testing process: run units of test code, one after the other, against a program in another process.

The outcomes go out through this process's own result descriptor, which the program cannot reach: a list of
``[status, reason, strained]`` in the ``values`` codec, one for each unit until the link was lost. A unit has
passed only when it ran to its end and the program answered once more. ``strained`` says that more than values
had to cross, so that the proxy itself may be why a test failed. Statuses: ``passed``; ``failed`` (the test's
assertion); ``unusable`` (what the program gave made the test code raise); ``raised`` (an exception of the
program's reached the test); ``missing`` (a function is not defined); ``gone`` (the link broke); ``broken``
(the test code itself is).
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

from whetstone.judge.harness.link import LinkLost
from whetstone.judge.harness.loading import describe, write_all
from whetstone.judge.harness.proxy import Peer
from whetstone.judge.harness.test_code import (
    TestCodeError,
    compiled,
    failed_line,
    ran_to_its_end,
    run_unittests,
    test_classes,
)
from whetstone.judge.values import decode, encode

_MODULE = "__test__"


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the units and write their outcomes."""
    if link_fd is None:
        raise ValueError("this harness needs a link")
    peer = Peer(link_fd, _MODULE)
    outcomes: list[list[Any]] = []
    greeting: list[Any] = []
    for unit in decode(payload):
        try:
            codes = [compiled(unit["setup"], "<setup>"), compiled(unit["code"], "<test>")]
            greeting = greeting or peer.link.receive_greeting()
            outcome = _outcome(peer, unit, greeting, codes)
        except TestCodeError as error:
            outcome = ["broken", str(error)[:300]]
        except LinkLost as error:
            outcome = ["gone", str(error)]
        except BaseException as error:
            # Outside the unit itself only an odd answer of the program's can raise.
            outcome = ["unusable", describe(error)]
        outcomes.append([*outcome, peer.strained])
        if peer.link.lost:
            break
        peer.begin_anew()
    write_all(result_fd, encode(outcomes))
    os._exit(0)


def _outcome(peer: Peer, unit: dict[str, Any], greeting: list[Any], codes: list[Any]) -> list[str]:
    if greeting[0] != "loaded":
        return ["raised", str(greeting[-1])]
    scope = _scope(peer, unit)
    entry = unit["entry_point"]
    if entry and entry not in scope:
        return ["missing", f"the program defines no `{entry}`"]
    try:
        for code in codes:
            exec(code, scope)
        outcome = _run(peer, unit, scope)
    except (LinkLost, TestCodeError):
        raise
    except BaseException as error:
        outcome = _explain(peer, error, unit["code"])
    nonce = os.urandom(8)
    if peer.ask("ping", nonce) != nonce:
        raise LinkLost("a wrong answer to a ping")
    if peer.caught is not None:
        return ["failed", f"the program caught a failed assertion: {peer.caught}"[:300]]
    return outcome


def _run(peer: Peer, unit: dict[str, Any], scope: dict[str, Any]) -> list[str]:
    """What is left to do once the code was executed: nothing for plain asserts."""
    if unit["kind"] == "check":
        if "check" not in scope:
            raise TestCodeError("the test code defines no `check`")
        ran_to_its_end(scope["check"](scope[unit["entry_point"]]))
    if unit["kind"] == "unittest":
        explain = partial(_explain, peer, code=unit["code"])
        return run_unittests(test_classes(scope.values(), _MODULE), explain)
    return ["passed", ""]


def _scope(peer: Peer, unit: dict[str, Any]) -> dict[str, Any]:
    """The test's globals: stand-ins for the program's names, and modules imported here."""
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    scope = module.__dict__
    scope["__builtins__"] = __builtins__
    scope.update(peer.names(unit["names"]))
    for name, (source, attribute) in unit["imports"].items():
        try:
            imported = importlib.import_module(source)
            scope[name] = getattr(imported, attribute) if attribute else imported
        except (ImportError, AttributeError) as error:
            raise TestCodeError(f"`{name}` cannot be imported for the test: {error}") from None
    if unit["entry_point"] in scope and "candidate" in unit["free"]:
        scope["candidate"] = scope[unit["entry_point"]]
    return scope


def _explain(peer: Peer, error: BaseException, code: str) -> list[str]:
    if any(error is raised for raised in peer.raised):
        return ["raised", describe(error)]
    if isinstance(error, AssertionError):
        return ["failed", str(error)[:300] or failed_line(error, code)]
    if isinstance(error, NameError):
        return ["missing", describe(error)]
    if isinstance(error, ImportError):
        raise TestCodeError(describe(error))
    return ["unusable", describe(error)]
