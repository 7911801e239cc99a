"""Versions from a publisher's TCP port: one connection asks what there is, and several fetch parts."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from whetstone.weights.codec import Damaged, most_bytes
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, Mark, load
from whetstone.weights.source import Gone, PartKey, Take, Unreachable
from whetstone.weights.wire import (
    Answer,
    Asked,
    AskPart,
    AskPlan,
    Failed,
    Link,
    Manifests,
    Part,
    split_address,
)

_TRIES = 4
_PAUSE_S = 0.1
_MOST_MANIFESTS = 64
T = TypeVar("T")


class TcpSource:
    """A Source at ``address`` (HOST:PORT), whose token is ``token``.

    streams: connections that fetch parts at once. silence_s: the longest that the publisher may say nothing,
    beyond what it was asked to wait; then, as after a cut, what is missing is asked for once more on a new
    connection, at most four times in a row. manifest_bytes: the largest manifest that is read.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        streams: int = 4,
        silence_s: float = 60.0,
        manifest_bytes: int = MANIFEST_BYTES,
    ) -> None:
        split_address(address)
        self._address, self._token, self._streams = address, token, max(streams, 1)
        self._silence_s, self._manifest_bytes = silence_s, manifest_bytes
        self._asking = _Stream(self, address)

    def plan(self, have: Mark | None, wait_s: float = 0.0) -> list[Manifest]:
        """See Source."""
        return self._asking.tried(lambda link: self._planned(link, have, wait_s), "asked for a plan")

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], take: Take) -> None:
        """See Source."""
        left: queue.SimpleQueue[PartKey] = queue.SimpleQueue()
        count = 0
        for key in parts:
            left.put(key)
            count += 1
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=self._stream, args=(manifest, left, take, errors), daemon=True)
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
        self._asking.close()

    def connected(self, address: str) -> Link:
        """A greeted connection. Raises OSError and Unreachable."""
        connection = socket.create_connection(split_address(address), timeout=self._silence_s)
        link = Link(connection, self._silence_s)
        try:
            link.greet(self._token, self._silence_s, address)
        except BaseException:
            link.close()
            raise
        return link

    def _stream(
        self,
        manifest: Manifest,
        left: queue.SimpleQueue[PartKey],
        take: Take,
        errors: list[BaseException],
    ) -> None:
        """One of the threads that fetch: parts, until none is left or somebody failed."""
        streams: dict[str, _Stream] = {}
        try:
            while not errors:
                try:
                    key = left.get_nowait()
                except queue.Empty:
                    return
                address = manifest.shards[key[0]].address or self._address
                stream = streams.setdefault(address, _Stream(self, address))
                doing = f"asked for a part of version {manifest.number}"
                data = stream.tried(lambda link, key=key: self._part(link, manifest, key), doing)
                take(key, data)
        except BaseException as error:  # carried to the thread that called fetch
            errors.append(error)
        finally:
            for stream in streams.values():
                stream.close()

    def _planned(self, link: Link, have: Mark | None, wait_s: float) -> list[Manifest]:
        answer = self._answer(link, AskPlan(have, wait_s), wait_s)
        if not isinstance(answer, Manifests):
            raise Damaged("another answer than a plan")
        most = self._manifest_bytes
        if len(answer.sizes) > _MOST_MANIFESTS or sum(map(abs, answer.sizes)) > 4 * most:
            raise Damaged("a plan of an impossible size")
        if any(not 0 < size <= most for size in answer.sizes):
            raise Damaged("a manifest of an impossible size")
        return [load(link.receive(size), most) for size in answer.sizes]

    def _part(self, link: Link, manifest: Manifest, key: PartKey) -> bytearray:
        base = manifest.base.number if manifest.base else None
        answer = self._answer(link, AskPart(manifest.number, base, key[1]), 0.0)
        if not isinstance(answer, Part) or not 0 < answer.size <= most_bytes(*manifest.part_shape(*key)):
            raise Damaged("another answer than a part")
        return link.receive(answer.size)

    def _answer(self, link: Link, asked: Asked, wait_s: float) -> Any:
        link.say(asked)
        answer = link.hear(Answer, self._silence_s + wait_s)  # pyright: ignore[reportArgumentType]
        if isinstance(answer, Failed):
            if answer.gone:
                raise Gone(answer.reason)
            raise Unreachable(f"{self._address}: {answer.reason}")
        return answer


class _Stream:
    """A connection that is made when it is needed, and again when it was cut."""

    def __init__(self, source: TcpSource, address: str) -> None:
        self._source, self._address = source, address
        self._link: Link | None = None

    def tried(self, ask: Callable[[Link], T], doing: str) -> T:
        """What ``ask`` gives, on new connections while there is hope. Raises Unreachable."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * 2**attempt)
            try:
                if self._link is None:
                    self._link = self._source.connected(self._address)
                return ask(self._link)
            except OSError as error:
                self.close()
                last = error
            except BaseException as error:
                # An answer that makes no sense leaves the connection in the middle of it.
                if not isinstance(error, Gone):
                    self.close()
                raise
        raise Unreachable(
            f"{self._address}: the publisher of weights, {doing}, does not answer: {last}; "  # pyright: ignore[reportPossiblyUnboundVariable]
            "is it running, and is this its address?"
        )

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.close()
            self._link = None
