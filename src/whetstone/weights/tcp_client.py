"""Fetches versions from a publisher's TCP port: one connection for plans, and several for parts."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from whetstone.core.addresses import is_loopback
from whetstone.weights.codec import decode_full, max_part_bytes
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, VersionId, load_manifest
from whetstone.weights.source import OnPart, PartKey, PublisherUnreachable, VersionEvicted
from whetstone.weights.streams import Bytes, CorruptData
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
# The fewest bytes of a part that say how fast a link is.
_MEASURED_BYTES = 1 << 20
T = TypeVar("T")


class TcpSource:
    """A WeightSource at ``address`` (HOST:PORT), with the token ``token``.

    streams: connections that fetch parts concurrently. silence_s: the longest silence of the publisher in
    seconds, beyond the requested wait. After a silence or a broken connection, missing parts are requested on
    a new connection, at most four times in a row.

    Parts of full versions travel raw on loopback, and from a peer whose first part shows that its link is
    faster than the compression.
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
        self._raw: dict[str, bool] = {}
        """Whether full parts of a peer, by its address, travel raw; unknown before the first one."""

    def plan(self, have: VersionId | None, wait_s: float = 0.0) -> list[Manifest]:
        """See Source."""
        return self._control.call(lambda link: self._request_plan(link, have, wait_s), "asked for a plan")

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], on_part: OnPart) -> None:
        """See Source."""
        left, errors = _SharedIterator(parts), list[BaseException]()
        threads = [
            threading.Thread(target=self._fetch_parts, args=(manifest, left, on_part, errors), daemon=True)
            for _ in range(self._streams)
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
        began = time.perf_counter()
        try:
            connection = socket.create_connection(split_address(address), timeout=self._silence_s)
        except UnicodeError:
            raise PublisherUnreachable(f"`{address}` is not an address; expected HOST:PORT") from None
        link = WeightLink(connection, self._silence_s)
        link.connect_s = time.perf_counter() - began
        try:
            link.authenticate_publisher(self._token, self._silence_s, address)
        except BaseException:
            link.close()
            raise
        return link

    def _fetch_parts(
        self,
        manifest: Manifest,
        left: _SharedIterator,
        take: OnPart,
        errors: list[BaseException],
    ) -> None:
        """Fetch parts in one thread until none is left or a thread has failed."""
        # The shards of a version may be at different addresses.
        streams: dict[str, _RetryingConnection] = {}
        try:
            while not errors:
                key = left.take()
                if key is None:
                    return
                address = manifest.shards[key[0]].address or self._address
                stream = streams.setdefault(address, _RetryingConnection(self, address))
                doing = f"asked for a part of version {manifest.number}"
                data = stream.call(partial(self._request_part, manifest, key, address), doing)
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

    def _request_part(self, manifest: Manifest, key: PartKey, address: str, link: WeightLink) -> Bytes:
        base = manifest.base.number if manifest.base else None
        width, count = manifest.part_shape(*key)
        raw = base is None and (self._raw.get(address, False) or is_loopback(split_address(address)[0]))
        asked = time.perf_counter()
        answer = self._request(link, PartRequest(manifest.number, base, key[1], raw), 0.0)
        if not isinstance(answer, PartHeader) or not 0 < answer.size <= max_part_bytes(width, count):
            raise CorruptData("the answer is not a part")
        began = time.perf_counter()
        data = link.receive(answer.size)
        if base is None and not raw and address not in self._raw and answer.size >= _MEASURED_BYTES:
            received = time.perf_counter()
            decode_full(data, width, count)
            codec_s = time.perf_counter() - received + max(began - asked - link.connect_s, 0.0)
            raw = raw_is_faster(answer.size, width * count, received - began, codec_s)
            self._raw.setdefault(address, raw)
        return data

    def _request(self, link: WeightLink, asked: Request, wait_s: float) -> Any:
        link.send_message(asked)
        answer = link.receive_message(Response, self._silence_s + wait_s)  # pyright: ignore[reportArgumentType]
        if isinstance(answer, FetchFailure):
            if answer.evicted:
                raise VersionEvicted(answer.reason)
            raise PublisherUnreachable(f"{self._address}: {answer.reason}")
        return answer


def raw_is_faster(size: int, raw_size: int, receive_s: float, codec_s: float) -> bool:
    """Return whether a raw part arrives before an encoded one is decoded.

    size: bytes of the encoded part, received in ``receive_s`` seconds. codec_s: seconds to encode and decode
    it.
    """
    return receive_s / size * (raw_size - size) < codec_s


class _SharedIterator:
    """An iterator from which several threads take."""

    def __init__(self, parts: Iterable[PartKey]) -> None:
        self._parts, self._lock = iter(parts), threading.Lock()

    def take(self) -> PartKey | None:
        """Return the next part; None at the end."""
        with self._lock:
            return next(self._parts, None)


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
