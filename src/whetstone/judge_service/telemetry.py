"""What a service says about itself: numbers for Prometheus, and a line of JSON for every request."""

from __future__ import annotations

from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from whetstone.judge_service.host import ServiceLog
from whetstone.verdict import Judgement

T = TypeVar("T", Counter, Gauge, Histogram)


class Telemetry(ServiceLog):
    """The metrics of one service, in a registry of their own, and its log."""

    def __init__(self, *, log: bool = True) -> None:
        super().__init__(log=log)
        self._of_endpoint: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.registry = CollectorRegistry()
        self._requests = self._made(Counter, "requests", "Requests answered", "endpoint", "status")
        self._seconds = self._made(Histogram, "request_seconds", "Until the end of the answer", "endpoint")
        self._programs = self._made(Counter, "programs", "Programs judged, by verdict", "verdict")
        self._cpu = self._made(Counter, "program_cpu_seconds", "CPU time of the programs judged")
        self._cases = self._made(Counter, "cases", "Cases judged")
        self.cancelled = self._made(Counter, "cancelled_programs", "Programs whose client hung up")
        self.spread = self._made(Counter, "spread_programs", "Programs judged on several workers at once")
        self.open_requests = self._made(Gauge, "open_requests", "Requests that are being answered")
        self.waiting = self._made(Gauge, "waiting_programs", "Programs that wait for a place")
        self.running = self._made(Gauge, "running_programs", "Programs that have a place")
        self.held_bytes = self._made(Gauge, "held_bytes", "Bodies and known problems", "what")

    def _made(self, kind: type[T], name: str, says: str, *labels: str) -> T:
        return kind(f"whetstone_judge_{name}", says, labels, registry=self.registry)

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """A request is over: counted, and logged."""
        kept = self._of_endpoint.get((endpoint, status))
        if kept is None:  # to look them up anew takes as long as to count
            kept = self._requests.labels(endpoint, str(status)), self._seconds.labels(endpoint)
            self._of_endpoint[endpoint, status] = kept
        kept[0].inc()
        kept[1].observe(seconds)
        self.say("request", endpoint=endpoint, status=status, ms=round(seconds * 1000, 1), **more)

    def judged(self, judgement: Judgement) -> None:
        """A program has its judgement."""
        self._programs.labels(judgement.verdict.value).inc()
        self._cases.inc(len(judgement.cases))
        self._cpu.inc(sum(case.cpu_s for case in judgement.cases))

    def page(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
