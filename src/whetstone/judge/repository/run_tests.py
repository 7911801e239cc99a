"""A harness: run tests with pytest, and write what they observe to the result descriptor.

The payload is a line of JSON, and the contents of files. Its keys: ``entries``, the names and sizes of the
files; ``files`` to run; ``paths``, the folders to search for modules; and ``plugins`` of pytest to load. The
process writes one record after another, each after its length. A record is a list in the ``values`` codec:

``["ready"]``: pytest is loaded, and no code under test. ``["test", id]``: a test begins. ``["value", hole,
value]``: a value, in an encoding of its own. ``["unplain", hole, text]``: a value without a plain form.
``["truth", hole, flag]``. ``["expected", hole, value]``: in a recording, what the observation before should
be. ``["end", id, outcome]``. ``["error", text]``: a file could not be collected. ``["done"]``: all tests were
run.

The code under test runs in this process, and can write every record itself. So records are claims, and only
the values in them count.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
from types import ModuleType
from typing import Any

_LENGTH = struct.Struct("<I")
_MAX_VALUE_BYTES = 1 << 20
_MAX_TEXT = 2000


def _load_codec() -> ModuleType:
    """Import the codec by its location, because the sandbox has only the standard library."""
    if "whetstone" in sys.modules:  # outside of a sandbox
        return importlib.import_module("whetstone.judge.values")
    folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for name, place in (("whetstone", os.path.dirname(folder)), ("whetstone.judge", folder)):
        package = ModuleType(name)
        package.__path__ = [place]
        sys.modules[name] = package
    codec = importlib.import_module("whetstone.judge.values")
    for name in [name for name in sys.modules if name.partition(".")[0] == "whetstone"]:
        del sys.modules[name]  # the code under test may have the same names
    return codec


_CODEC = _load_codec()


class Observer:
    """Writes the records. The tests call its methods."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, *record: object) -> None:
        """Write one record."""
        data = _CODEC.encode(list(record))
        view = memoryview(_LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._fd, view) :]

    def value(self, hole: int, value: object) -> None:
        """Report a value."""
        self._value("value", hole, value)

    def truth(self, hole: int, value: object) -> None:
        """Report whether a value is true."""
        self.write("truth", hole, bool(value))

    def record(self, hole: int, value: object, expected: object) -> None:
        """Report a value and the expected one."""
        self._value("value", hole, value)
        self._value("expected", hole, expected)

    def record_truth(self, hole: int, value: object, expected: bool) -> None:
        """Report whether a value is true, and whether it should be."""
        self.truth(hole, value)
        self._value("expected", hole, expected)

    def _value(self, kind: str, hole: int, value: object) -> None:
        try:
            data = _CODEC.encode(value, max_bytes=_MAX_VALUE_BYTES)
        except _CODEC.NotInert as error:
            self.write("unplain", hole, str(error)[:_MAX_TEXT])
        else:
            self.write(kind, hole, data)


class ReportPlugin:
    """Reports the beginning and the outcome of each test."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._outcomes: list[str] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report the beginning of a test."""
        self._outcomes = []
        self._observer.write("test", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Collect the outcomes of set-up, test and tear-down."""
        expected_failure = hasattr(report, "wasxfail")
        self._outcomes.append("xfailed" if expected_failure else report.outcome)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Report the outcome of a test: that of all phases if they agree, else the first other one."""
        others = [outcome for outcome in self._outcomes if outcome != "passed"]
        self._observer.write("end", nodeid, others[0] if others else "passed")

    def pytest_collectreport(self, report: Any) -> None:
        """Report a file that could not be collected."""
        if report.failed:
            self._observer.write("error", f"{report.nodeid}: {report.longrepr}"[-_MAX_TEXT:])


def _write_files(entries: list[tuple[str, int]], contents: memoryview) -> None:
    for name in os.listdir("."):  # a jail has an empty file for the program of other harnesses
        os.unlink(name)
    start = 0
    for name, size in entries:
        if folder := os.path.dirname(name):
            os.makedirs(folder, exist_ok=True)
        with open(name, "xb") as file:
            file.write(contents[start : start + size])
        start += size


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run the tests that the payload names. Exits without waiting for threads of the code under test."""
    line, _, contents = payload.partition(b"\n")
    request = json.loads(line)
    import pytest  # before the search path has folders of the code under test

    _write_files(request["entries"], memoryview(contents))
    paths = [os.path.abspath(path) for path in request["paths"]]
    sys.path[:0] = paths
    # For processes that the tests start.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    sys.argv = ["pytest"]
    observer = Observer(result_fd)
    module = ModuleType("whetstone_observer")
    for name in ("value", "truth", "record", "record_truth"):
        setattr(module, name, getattr(observer, name))
    sys.modules[module.__name__] = module
    observer.write("ready")
    plugins = [part for name in request["plugins"] for part in ("-p", name)]
    options = ["-q", "--continue-on-collection-errors", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=no"]
    pytest.main([*options, "--rootdir", ".", *plugins, *request["files"]], plugins=[ReportPlugin(observer)])
    observer.write("done")
    sys.stdout.flush()
    os._exit(0)
