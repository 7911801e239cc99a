"""The flow on an event loop: a clock, waiting clients, and a log of long waits."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from whetstone.rollout.flow_rules import FlowRefusal
from whetstone.rollout.group_facts import LogLocation
from whetstone.rollout.protocol import (
    LONGEST_WAIT_S,
    BatchGroup,
    BatchPending,
    BatchResponse,
    DeliveryRequest,
    LeaseRequest,
    LeaseResponse,
    LeasesReturned,
    TrainerRequest,
)
from whetstone.rollout.scheduler import FlowScheduler
from whetstone.rollout.state import BatchRecord, Offer
from whetstone.rollout.status import Activity, FlowUsage, batch_wait_reason, stalls, status_of

# The most replicas to serve per event. With a thousand replicas, serving all after each group would be too
# slow.
_MOST_AT_ONCE = 32


class WaitingReplicas:
    """The waiting replicas that have room, in the order in which they are served."""

    def __init__(self) -> None:
        self._queue: OrderedDict[str, None] = OrderedDict()

    def add(self, replica: str) -> None:
        """Add a replica that has room and got no prompts."""
        self._queue.setdefault(replica)

    def discard(self, replica: str) -> None:
        """Remove a replica that does not wait any more."""
        self._queue.pop(replica, None)

    def serve(self, scheduler: FlowScheduler, answer: Callable[[str], bool]) -> None:
        """Call ``answer`` for one replica after another while the scheduler has prompts. A replica that gets
        nothing moves to the end of the queue."""
        for replica in list(itertools.islice(self._queue, _MOST_AT_ONCE)):
            if not scheduler.has_prompts():
                return
            if answer(replica):
                self.discard(replica)
            elif replica in self._queue:
                self._queue.move_to_end(replica)


_TICK_S = 1.0
EventLogger = Callable[..., None]


def _no_log(event: str, **fields: Any) -> None: ...


class AsyncFlow:
    """Implements ``LeaseService`` and ``BatchService`` with a FlowScheduler. Use it on one event loop, and
    keep ``run`` running."""

    def __init__(
        self, scheduler: FlowScheduler, *, log_event: EventLogger = _no_log, stall_s: float = 60.0
    ) -> None:
        """``log_event`` is called with events; ``stall_s``: interval in seconds at which long waits are
        logged."""
        self.scheduler = scheduler
        self._log_event, self._stall_s = log_event, stall_s
        self._waiting_requests: dict[str, tuple[LeaseRequest, asyncio.Future[LeaseResponse]]] = {}
        self._waiting = WaitingReplicas()
        self._changed = asyncio.Event()
        self._now = time.monotonic
        self.trainers = {name: Activity("has not connected", self._now()) for name in scheduler.state.models}
        self._idle_since: dict[str, float] = {}
        self.usage = FlowUsage()
        self._usage_state = (0, 0, False)

    async def run(self) -> None:
        """Take back leases of late or dead replicas and log long waits, until cancelled."""
        last_stall_check = self._now()
        while True:
            await asyncio.sleep(_TICK_S)
            self._update_usage()
            before = dict(self.scheduler.state.counts)
            try:
                self.scheduler.expire(self._now())
            except Exception as error:
                # The cause may be temporary, such as a full disk. The next tick retries.
                self._log_event("log_failed", why=str(error))
            counts = self.scheduler.state.counts
            if changed := {what: n for what, n in counts.items() if n != before.get(what, 0)}:
                self._log_event("taken_back", **changed)
                self._notify()
            if self._now() - last_stall_check > self._stall_s:
                last_stall_check = self._now()
                for stall in stalls(
                    self.scheduler, self.trainers, self._current_idle_since(), last_stall_check, self._stall_s
                ):
                    self._log_event("stall", what=stall)

    # -- replicas

    async def take(self, request: LeaseRequest) -> LeaseResponse:
        """See LeaseService."""
        member = self.scheduler.replicas.get(request.replica)
        if member is not None and not member.claim_name(request.replica, request.incarnation, self._now()):
            # An answer at once would make the second process repeat its request in a loop.
            # A sleep of NaN seconds would never end.
            await asyncio.sleep(min(request.wait_s, _TICK_S) if request.wait_s > 0 else 0.0)
            return LeaseResponse([], [], {})
        update = self._lease_update(request)
        self.scheduler.replicas[request.replica].incarnation = request.incarnation
        if _has_content(update) or request.room <= 0 or not request.wait_s > 0:
            return update
        future: asyncio.Future[LeaseResponse] = asyncio.get_running_loop().create_future()
        self._waiting_requests[request.replica] = waiting = (request, future)
        if self.scheduler.may_take(request.replica):
            self._waiting.add(request.replica)
        try:
            async with asyncio.timeout(
                # The replica must send its next message well before its silence counts as death.
                min(request.wait_s, LONGEST_WAIT_S, self.scheduler.rules.silence_s / 3)
            ):
                return await future
        except TimeoutError:
            return update
        except asyncio.CancelledError:
            # The client disconnected, as a killed process does. Its successor then gets the name at once.
            if (member := self.scheduler.replicas.get(request.replica)) is not None:
                member.disconnected = member.incarnation == request.incarnation
            raise
        finally:
            # A later request of the same replica may have replaced this one.
            if self._waiting_requests.get(request.replica) is waiting:
                del self._waiting_requests[request.replica]
                self._waiting.discard(request.replica)

    async def deliver(self, request: DeliveryRequest) -> list[str]:
        """See LeaseService. Raises UserError for a full disk: then only some deliveries, or none, were
        stored."""
        replica, incarnation = request.replica, request.incarnation
        if not self._may_act(replica, incarnation):
            # The process has lost its name, and its leases may be sampled elsewhere.
            return ["revoked"] * len(request.deliveries)
        receipts: list[str] = []
        try:
            for delivery in request.deliveries:
                try:
                    receipts.append(self.scheduler.deliver(replica, delivery, self._now(), incarnation))
                except FlowRefusal as refusal:
                    self._log_event("refused", replica=replica, why=str(refusal))
                    receipts.append(f"refused: {refusal}")
        finally:
            self._answer_waiting(replica)
            self._notify()
        return receipts

    async def give_back(self, returned: LeasesReturned) -> None:
        """See LeaseService."""
        replica, serials = returned.replica, returned.serials
        if not self._may_act(replica, returned.incarnation):
            return
        self.scheduler.report(replica, returned.progress, returned.incarnation)
        if returned.leaves:
            self.scheduler.leave(replica)
            self._log_event("left", replica=replica)
        else:
            self.scheduler.give_back(replica, serials, "failed", count_failure=True)
            self._log_event("gave_back", replica=replica, leases=len(serials), why=returned.reason)
        self._notify()

    def _may_act(self, replica: str, incarnation: str) -> bool:
        """Return whether no other process acts under the name."""
        member = self.scheduler.replicas.get(replica)
        return member is None or member.accepts(incarnation)

    def _lease_update(self, request: LeaseRequest, last_heard: float | None = None) -> LeaseResponse:
        new = request.replica not in self.scheduler.replicas
        update = self.scheduler.take(
            request.replica,
            holding=request.holding,
            room=request.room,
            versions={name: offer.version for name, offer in request.serving.items()},
            load=request.load,
            progress=request.progress,
            reporter=request.incarnation,
            now=self._now(),
        )
        if last_heard is not None:
            self.scheduler.replicas[request.replica].last_heard = last_heard
        if new:
            self._log_event("joined", replica=request.replica, room=request.room)
        if request.replica in self.scheduler.state.leases_by_replica:
            self._idle_since.pop(request.replica, None)
        else:
            self._idle_since.setdefault(request.replica, self._now())
        self._update_usage()
        offers = {
            name: offer for name, offer in update.weight_updates.items() if offer != request.serving[name]
        }
        return LeaseResponse(update.leases, update.revoked, offers)

    def _notify(self, *, all_replicas: bool = False) -> None:
        """Wake all requests that the last change may concern."""
        self._update_usage()
        self._changed.set()
        self._changed = asyncio.Event()
        if all_replicas:
            for replica in list(self._waiting_requests):
                self._answer_waiting(replica)
        self._waiting.serve(self.scheduler, self._answer_waiting)

    def _answer_waiting(self, replica: str) -> bool:
        """Answer the waiting request of a replica if there is something new. Return whether it was
        answered."""
        request, future = self._waiting_requests.get(replica, (None, None))
        if request is None or future is None or future.done() or replica not in self.scheduler.replicas:
            return False
        if not self._may_act(replica, request.incarnation):
            return False
        try:
            # The replica sent no message now, so the time of its last message must not change.
            update = self._lease_update(request, last_heard=self.scheduler.replicas[replica].last_heard)
        except Exception as error:
            future.set_exception(error)
            return True
        if _has_content(update):
            future.set_result(update)
            return True
        if self.scheduler.may_take(replica):
            self._waiting.add(replica)
        return False

    # -- trainers

    async def batch(self, request: TrainerRequest) -> BatchResponse | BatchPending:
        """See BatchService. Raises FlowRefusal as ``FlowScheduler.next_batch`` does."""
        found = await self.batch_record(request)
        if isinstance(found, BatchPending):
            return found
        return batch_response(request.version, found, self.scheduler.log.read)

    async def batch_record(self, request: TrainerRequest) -> BatchRecord | BatchPending:
        """Return the batch with the locations of its groups instead of their bytes."""
        model, version = request.model, request.version
        until = self._now() + min(request.wait_s, LONGEST_WAIT_S)
        if request.saved is not None:
            self.scheduler.checkpoint_saved(model, request.saved)
        if request.offer is not None:
            await self.publish(model, request.offer)
        record = self.scheduler.next_batch(model, version)
        if record is None:
            self._set_activity(model, f"waits for the batch of version {version}")
            self._notify()
        while record is None:
            # Every change replaces the event, so this waits for the next change after the composition failed.
            changed = self._changed
            if not (left := until - self._now()) > 0:
                return BatchPending(batch_wait_reason(self.scheduler, model, self._now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()
            record = self.scheduler.next_batch(model, version)
        self._set_activity(model, f"trains on the batch of version {version}")
        self._notify()
        return record

    async def publish(self, model: str, offer: Offer) -> None:
        """See BatchService."""
        known = self.scheduler.state.models.get(model)
        # A trainer repeats its last offer with every request.
        if known is None or offer != known.offer:
            self.scheduler.publish(model, offer)
            self._set_activity(model, f"has published version {offer.version}")
            self._log_event("published", model=model, version=offer.version)
            self._notify(all_replicas=True)

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """See BatchService."""
        self.scheduler.resume(model, version, drawn, unused)
        self._set_activity(model, f"starts at version {version}")
        self._log_event("trainer", model=model, version=version)
        self._notify(all_replicas=True)

    def _set_activity(self, model: str, description: str) -> None:
        if self.trainers[model].description != description:
            self.trainers[model] = Activity(description, self._now())
            self._update_usage()

    def _update_usage(self) -> None:
        """Add the time since the last change to the usage totals."""
        replicas, sampling, training = self._usage_state
        # The time until now belongs to the state before this change.
        self.usage.advance(self._now(), replicas=replicas, sampling=sampling, training=training)
        trains = any(activity.description.startswith("trains") for activity in self.trainers.values())
        self._usage_state = (
            len(self.scheduler.replicas),
            len(self.scheduler.state.leases_by_replica),
            trains,
        )

    def _current_idle_since(self) -> dict[str, float]:
        """Return the replicas without a prompt, and since when."""
        self._idle_since = {
            name: since for name, since in self._idle_since.items() if name in self.scheduler.replicas
        }
        return self._idle_since

    def status(self) -> dict[str, Any]:
        """Return what each role does, what it waits for, and since when, as plain data."""
        self._update_usage()
        found = status_of(self.scheduler, self.trainers, self._current_idle_since(), self._now())
        return {**found, "usage": self.usage.totals()}


def batch_response(version: int, found: BatchRecord, read: Callable[[LogLocation], bytes]) -> BatchResponse:
    """Return the response with a batch. ``read`` returns the bytes of a group."""
    groups = [
        BatchGroup(item.draw, item.drop_reason, item.facts, read(item.location)) for item in found.groups
    ]
    return BatchResponse(version, groups, found.lost, found.drawn, found.unused, found.oldest)


def _has_content(news: LeaseResponse) -> bool:
    return bool(news.leases or news.revoked or news.weight_updates)
