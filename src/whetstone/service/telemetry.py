"""Telemetry of a service: metrics for Prometheus, and one line of JSON for each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from whetstone.core.http.service_host import ServiceLog
from whetstone.core.verdict import Judgement
from whetstone.service.messages import NodeState

T = TypeVar("T", Counter, Gauge, Histogram)


class Telemetry(ServiceLog):
    """The metrics of one service, in its own registry, and its log."""

    def __init__(self, *, log: bool = True) -> None:
        super().__init__(log=log)
        self._endpoint_metrics: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.registry = CollectorRegistry()
        self._requests = self._metric(Counter, "requests", "Requests with a response", "endpoint", "status")
        self._seconds = self._metric(
            Histogram, "request_seconds", "Time to the end of the response", "endpoint"
        )
        self._programs = self._metric(Counter, "programs", "Programs judged, by verdict", "verdict")
        self._cpu = self._metric(Counter, "program_cpu_seconds", "CPU time of judged programs")
        self._cases = self._metric(Counter, "cases", "Cases judged")
        self.cancelled = self._metric(Counter, "cancelled_programs", "Programs whose client disconnected")
        self.spread = self._metric(Counter, "spread_programs", "Programs judged on several workers at once")
        self.open_requests = self._metric(Gauge, "open_requests", "Requests in progress")
        self.waiting = self._metric(Gauge, "waiting_programs", "Programs in the queue")
        self.running = self._metric(Gauge, "running_programs", "Programs with a slot")
        self.held_bytes = self._metric(Gauge, "held_bytes", "Bytes of bodies and of cached problems", "what")

    def _metric(self, kind: type[T], name: str, description: str, *labels: str) -> T:
        return kind(f"whetstone_judge_{name}", description, labels, registry=self.registry)

    def answered(self, endpoint: str, status: int, seconds: float, **fields: Any) -> None:
        """Count and log a finished request. ``seconds`` is its duration."""
        metrics = self._endpoint_metrics.get((endpoint, status))
        # `labels` takes as long as counting does, so its results are cached.
        if metrics is None:
            metrics = self._requests.labels(endpoint, str(status)), self._seconds.labels(endpoint)
            self._endpoint_metrics[endpoint, status] = metrics
        metrics[0].inc()
        metrics[1].observe(seconds)
        self.say("request", endpoint=endpoint, status=status, ms=round(seconds * 1000, 1), **fields)

    def judged(self, judgement: Judgement) -> None:
        """Count a judged program."""
        self._programs.labels(judgement.verdict.value).inc()
        self._cases.inc(len(judgement.cases))
        self._cpu.inc(sum(case.cpu_s for case in judgement.cases))

    def count_nodes(self, nodes: Callable[[], list[NodeState]]) -> None:
        """Export the states of a cluster's nodes as metrics. ``nodes`` is called at each scrape."""
        self.registry.register(_NodeCollector(nodes))

    def page(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _NodeCollector(Collector):
    """The nodes of a cluster as metrics."""

    def __init__(self, nodes: Callable[[], list[NodeState]]) -> None:
        self._nodes = nodes

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not query the nodes."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the present numbers."""
        states = self._nodes()
        by_state = GaugeMetricFamily("whetstone_judge_nodes", "Nodes of the cluster", labels=["state"])
        for name in ("ready", "starting", "left_out", "lost"):
            by_state.add_metric([name], sum(state.state == name for state in states))
        yield by_state
        losses = sum(state.losses for state in states)
        yield CounterMetricFamily("whetstone_judge_node_losses", "Lost servers of nodes", value=losses)
        for name, about in (
            ("workers", "Workers of a node that is ready"),
            ("in_flight", "Programs that a node is judging"),
            ("judged", "Programs that a node has judged"),
        ):
            family = GaugeMetricFamily(f"whetstone_judge_node_{name}", about, labels=["node"])
            for state in states:
                if state.state == "ready":
                    family.add_metric([state.name], getattr(state, name))
            yield family
