"""What a server makes of a cluster: programs that are run there, numbers of its nodes, and its growth."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from whetstone.judge_service.cluster.judge import ClusterJudge
from whetstone.judge_service.cluster.messages import NodeState
from whetstone.judge_service.runner.tasks import Ran, RunTask
from whetstone.judge_service.telemetry import Telemetry

_STATES = ("ready", "starting", "left_out")
_COUNTED = {
    "losses": ("node_losses", "Nodes that were lost"),
    "rerun": ("rerun_programs", "Programs that were begun anew because their node was lost"),
    "given_up": ("given_up_programs", "Programs not judged, because several nodes were lost with them"),
}


class ClusterRunners:
    """Programs that are run and not judged, on the nodes."""

    def __init__(self, judge: ClusterJudge) -> None:
        self._judge = judge

    def submit(self, task: RunTask) -> Future[Ran]:
        """Run a task; ``cancel`` on the future ends it."""
        return self._judge.run(task)

    def close(self) -> None:
        """Nothing: what runs there ends with the cluster's judge."""


def watch_nodes(judge: ClusterJudge, telemetry: Telemetry, resized: Callable[[int, int, str], None]) -> None:
    """Log nodes that come and go, count them, and tell of workers, window and isolation as they change.

    Called on the event loop on which ``resized`` is to be called.
    """
    loop = asyncio.get_running_loop()

    def say(event: str, **fields: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the cluster's judge does soon
            loop.call_soon_threadsafe(lambda: telemetry.say(event, **fields))

    def changed() -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: resized(judge.workers, judge.window, judge.isolation))

    telemetry.registry.register(_Nodes(judge))
    judge.listen(say, changed)
    for node in judge.nodes():
        telemetry.say("node", node=node.name, state=node.state, workers=node.workers, reason=node.reason)
    changed()


class _Nodes(Collector):
    """The nodes as metrics."""

    def __init__(self, judge: ClusterJudge) -> None:
        self._judge = judge

    def describe(self) -> Iterable[Any]:
        """Nothing is asked of the cluster when this is registered."""
        return []

    def collect(self) -> Iterable[Any]:
        """As they fare now."""
        states = self._judge.nodes()
        counts = Counter(state.state for state in states)
        nodes = GaugeMetricFamily("whetstone_judge_nodes", "Nodes of the cluster", labels=["state"])
        for state in _STATES:
            nodes.add_metric([state], counts[state])
        yield nodes
        yield _by_node("workers", "Workers of a node that judges", states, lambda state: state.workers)
        yield _by_node("under_way", "Programs that a node has", states, lambda state: state.under_way)
        yield _by_node("answered", "Programs that a node has answered", states, lambda state: state.judged)
        for name, count in self._judge.counts().items():
            metric, says = _COUNTED[name]
            yield CounterMetricFamily(f"whetstone_judge_{metric}", says, value=count)


def _by_node(
    name: str, says: str, states: list[NodeState], value: Callable[[NodeState], int]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"whetstone_judge_node_{name}", says, labels=["node"])
    for state in states:
        if state.state == "ready":
            family.add_metric([state.name], value(state))
    return family
