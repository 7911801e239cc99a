"""Fetches versions from a publisher's TCP port: one connection for plans, and several for parts."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from whetstone.weights.codec import max_part_bytes
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, VersionId, load_manifest
from whetstone.weights.source import OnPart, PartKey, PublisherUnreachable, VersionEvicted
from whetstone.weights.streams import CorruptData
from whetstone.weights.wire import (
    FetchFailure,
    Manifests,
    PartHeader,
    PartRequest,
    PlanRequest,
    Request,
    Response,
    WeightLink,
    split_address,
)

_TRIES = 4
_PAUSE_S = 0.1
_MOST_MANIFESTS = 64
T = TypeVar("T")


class TcpSource:
    """A WeightSource at ``address`` (HOST:PORT), with the token ``token``.

    streams: connections that fetch parts concurrently. silence_s: the longest silence of the publisher in
    seconds, beyond the requested wait. After a silence or a broken connection, missing parts are requested on
    a new connection, at most four times in a row.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        streams: int = 4,
        silence_s: float = 60.0,
    ) -> None:
        split_address(address)
        self._address, self._token, self._streams = address, token, max(streams, 1)
        self._silence_s = silence_s
        self._control = _RetryingConnection(self, address)

    def plan(self, have: VersionId | None, wait_s: float = 0.0) -> list[Manifest]:
        """See Source."""
        return self._control.call(lambda link: self._request_plan(link, have, wait_s), "asked for a plan")

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], on_part: OnPart) -> None:
        """See Source."""
        left: queue.SimpleQueue[PartKey] = queue.SimpleQueue()
        count = 0
        for key in parts:
            left.put(key)
            count += 1
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=self._fetch_parts, args=(manifest, left, on_part, errors), daemon=True)
            for _ in range(min(self._streams, count))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """See Source."""
        self._control.close()

    def connect(self, address: str) -> WeightLink:
        """Return an authenticated connection. Raises OSError and PublisherUnreachable."""
        try:
            connection = socket.create_connection(split_address(address), timeout=self._silence_s)
        except UnicodeError:
            raise PublisherUnreachable(f"`{address}` is not an address; expected HOST:PORT") from None
        link = WeightLink(connection, self._silence_s)
        try:
            link.authenticate_publisher(self._token, self._silence_s, address)
        except BaseException:
            link.close()
            raise
        return link

    def _fetch_parts(
        self,
        manifest: Manifest,
        left: queue.SimpleQueue[PartKey],
        take: OnPart,
        errors: list[BaseException],
    ) -> None:
        """Fetch parts in one thread until none is left or a thread has failed."""
        # The shards of a version may be at different addresses.
        streams: dict[str, _RetryingConnection] = {}
        try:
            while not errors:
                try:
                    key = left.get_nowait()
                except queue.Empty:
                    return
                address = manifest.shards[key[0]].address or self._address
                stream = streams.setdefault(address, _RetryingConnection(self, address))
                doing = f"asked for a part of version {manifest.number}"
                data = stream.call(lambda link, key=key: self._request_part(link, manifest, key), doing)
                take(key, data)
        except BaseException as error:
            # The thread that called `fetch` raises it again.
            errors.append(error)
        finally:
            for stream in streams.values():
                stream.close()

    def _request_plan(self, link: WeightLink, have: VersionId | None, wait_s: float) -> list[Manifest]:
        answer = self._request(link, PlanRequest(have, wait_s), wait_s)
        if not isinstance(answer, Manifests):
            raise CorruptData("the answer is not a plan")
        # Sizes are checked before memory is reserved for them.
        if len(answer.sizes) > _MOST_MANIFESTS or sum(map(abs, answer.sizes)) > 4 * MANIFEST_BYTES:
            raise CorruptData("a plan of an impossible size")
        if any(not 0 < size <= MANIFEST_BYTES for size in answer.sizes):
            raise CorruptData("a manifest of an impossible size")
        return [load_manifest(link.receive(size)) for size in answer.sizes]

    def _request_part(self, link: WeightLink, manifest: Manifest, key: PartKey) -> bytearray:
        base = manifest.base.number if manifest.base else None
        answer = self._request(link, PartRequest(manifest.number, base, key[1]), 0.0)
        if not isinstance(answer, PartHeader) or not 0 < answer.size <= max_part_bytes(
            *manifest.part_shape(*key)
        ):
            raise CorruptData("the answer is not a part")
        return link.receive(answer.size)

    def _request(self, link: WeightLink, asked: Request, wait_s: float) -> Any:
        link.send_message(asked)
        answer = link.receive_message(Response, self._silence_s + wait_s)  # pyright: ignore[reportArgumentType]
        if isinstance(answer, FetchFailure):
            if answer.evicted:
                raise VersionEvicted(answer.reason)
            raise PublisherUnreachable(f"{self._address}: {answer.reason}")
        return answer


class _RetryingConnection:
    """A connection that is opened on first use, and again after it broke."""

    def __init__(self, source: TcpSource, address: str) -> None:
        self._source, self._address = source, address
        self._link: WeightLink | None = None

    def call(self, request: Callable[[WeightLink], T], description: str) -> T:
        """Return the result of ``request``, retried on new connections. Raises PublisherUnreachable."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * 2**attempt)
            try:
                if self._link is None:
                    self._link = self._source.connect(self._address)
                return request(self._link)
            except OSError as error:
                self.close()
                last = error
            except BaseException as error:
                # After an invalid answer the position in the stream is unknown, so the connection is closed.
                if not isinstance(error, VersionEvicted):
                    self.close()
                raise
        raise PublisherUnreachable(
            f"{self._address}: the publisher of weights, {description}, does not answer: {last}; "  # pyright: ignore[reportPossiblyUnboundVariable]
            "is it running, and is this its address?"
        )

    def close(self) -> None:
        """Close the connection if it is open."""
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.close()
            self._link = None
