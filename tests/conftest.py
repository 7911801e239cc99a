"""Settings for every area of the suite."""

import gc
import signal
import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, settings

from tests import process_mark
from tests.drawn import draw_cases, draw_tiers

# Timing never decides a test, however busy the machine is.
settings.register_profile(
    "standard", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("standard"), max_examples=100)
settings.register_profile("fast", settings.get_profile("standard"), max_examples=15)
settings.load_profile("standard")


@pytest.fixture(autouse=True)
def deterministic_mode_ends_with_the_test() -> Iterator[None]:
    """Reset the mode of torch: a deterministic run sets it for the whole process."""
    yield
    if torch := sys.modules.get("torch"):
        torch.use_deterministic_algorithms(False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw what runs. ``make test-fast`` starts no sandbox, and so cannot ask which tiers there are."""
    if not config.pluginmanager.has_plugin("tests.fast"):
        draw_tiers(items)
    draw_cases(items)


def pytest_collection_finish() -> None:
    """Exclude what the collection imported from garbage collection: it lives as long as the process."""
    gc.collect()
    gc.freeze()


class _LeftOut:
    """Counts the tests that only ``make test-all`` runs, and says so at the end."""

    def __init__(self) -> None:
        self.count = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count in the process that collects: a worker, under xdist."""
        self.count += sum(item.get_closest_marker("extended") is not None for item in items)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that reports."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = self.count

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the count of a worker. Each of them collects all tests."""
        output: dict[str, int] = getattr(node, "workeroutput", {})
        self.count = max(self.count, output.get("left_out", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many tests were left out, and the command that runs them."""
        if self.count:
            terminalreporter.write_line(
                f"{self.count} extended tests were left out; `make test-all` runs them"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-ins of the suite, and end on Ctrl-C even in the background.

    A shell starts background jobs with SIGINT ignored, and tests of signals would fail there.
    """
    config.pluginmanager.register(process_mark)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(_LeftOut(), "left-out")
