"""Serves a version store on a TCP port, with one thread for each connection."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

from whetstone.core.addresses import host_port, is_loopback
from whetstone.core.closing import Closing
from whetstone.core.errors import UserError
from whetstone.weights.manifest import dump_manifest
from whetstone.weights.settings import TOKEN_VARIABLE
from whetstone.weights.source import VersionEvicted
from whetstone.weights.streams import CorruptData
from whetstone.weights.version_store import VersionReading, VersionStore
from whetstone.weights.wire import (
    FetchFailure,
    Manifests,
    PartHeader,
    PartRequest,
    PlanRequest,
    Request,
    WeightLink,
)

_MOST_WAIT_S = 30.0
_MOST_CHAIN = 64


def check_listening(host: str, port: int, token: str) -> None:
    """Raise UserError, as a TcpServer would, for an address that is not available or needs a token."""
    _listen(host, port, token).close()


def _listen(host: str, port: int, token: str) -> socket.socket:
    if not token and not is_loopback(host):
        raise UserError(
            f"every host that can reach {host} could fetch the weights: set a token ({TOKEN_VARIABLE}), or "
            "listen on 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"{host}:{port}: cannot listen for replicas: {reason}; name another port "
            "(`flow.weights.port`, or "
            "--weights-port) or host"
        ) from None


class TcpServer(Closing):
    """Serves ``store`` until it is closed. ``port`` 0 selects a free one; :attr:`port` is the actual port.

    token: the token of replicas; required unless only this machine can reach ``host``. silence_s: seconds
    after which a connection without requests or progress is closed. connections: the most authenticated
    connections; further ones are closed at once. greetings: the most connections that are not authenticated
    yet, each for at most ``greeting_s``. A further one closes the oldest, so silent clients cannot block
    others. Raises UserError for an address that is not available.
    """

    def __init__(
        self,
        store: VersionStore,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        silence_s: float = 60.0,
        connections: int = 256,
        greetings: int = 64,
        greeting_s: float = 2.0,
    ) -> None:
        self._store, self._token, self._silence_s = store, token, silence_s
        self._connection_slots = threading.BoundedSemaphore(connections)
        self._greetings, self._greeting_s = greetings, greeting_s
        self._unauthenticated: dict[WeightLink, None] = {}
        """Connections that are not authenticated yet, oldest first."""
        self._links: set[WeightLink] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listening = _listen(host, port, token)
        self.host, self.port = host, int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="weights-tcp", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT for replicas on this machine."""
        return host_port(self.host, self.port)

    def close(self) -> None:
        """Close the port and every connection."""
        with self._lock:
            self._closed = True
            # Closed below without the lock, which the threads of the connections take when they end.
            links = [*self._links, *self._unauthenticated]
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for link in links:
            link.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                # For example out of file descriptors. Open connections may end soon.
                if not self._closed:
                    threading.Event().wait(0.1)
                continue
            try:
                self._start(WeightLink(connection, self._silence_s))
            except (OSError, RuntimeError):
                # The client is gone, or the machine allows no further thread. Other connections go on.
                connection.close()

    def _start(self, link: WeightLink) -> None:
        """Serve a new connection in a thread. Raises RuntimeError if there can be no further thread."""
        with self._lock:
            self._unauthenticated[link] = None
            oldest = (
                next(iter(self._unauthenticated)) if len(self._unauthenticated) > self._greetings else None
            )
            if oldest is not None:
                del self._unauthenticated[oldest]
        if oldest is not None:
            oldest.close()
        # Sending blocks, so each reader has a thread, and a slow reader does not delay others.
        thread = threading.Thread(target=self._serve, args=(link,), name="weights-link", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._unauthenticated.pop(link, None)
            raise

    def _serve(self, link: WeightLink) -> None:
        """Serve one connection. Invalid data can only end this connection."""
        try:
            # A raw part of a version that is evicted meanwhile ends early, and with it the connection.
            with contextlib.suppress(OSError, CorruptData, VersionEvicted):
                if link.authenticate_replica(
                    self._token, self._greeting_s
                ) and self._connection_slots.acquire(blocking=False):
                    try:
                        self._serve_replica(link)
                    finally:
                        self._connection_slots.release()
        finally:
            with self._lock:
                self._unauthenticated.pop(link, None)
                self._links.discard(link)
            link.close()

    def _serve_replica(self, link: WeightLink) -> None:
        """Serve an authenticated replica. Raises OSError, CorruptData."""
        with self._lock:
            if link not in self._unauthenticated:
                # The connection was closed as the oldest of too many.
                return
            del self._unauthenticated[link]
            self._links.add(link)
        _ReplicaConnection(link, self._store, self._silence_s).serve()


class _ReplicaConnection:
    def __init__(self, link: WeightLink, store: VersionStore, silence_s: float) -> None:
        self._link, self._store, self._silence_s = link, store, silence_s
        self._reading: VersionReading | None = None
        self._open_version: tuple[int, int | None] | None = None

    def serve(self) -> None:
        """Answer requests until the replica disconnects."""
        try:
            while True:
                request = self._link.receive_message(Request, self._silence_s)  # pyright: ignore[reportArgumentType]
                if isinstance(request, PlanRequest):
                    self._plan(request)
                else:
                    self._part(request)
        finally:
            if self._reading is not None:
                self._reading.close()

    def _plan(self, request: PlanRequest) -> None:
        # An answer after a bounded wait shows the replica that the server is alive.
        # NaN is not above 0, and a wait for NaN seconds would never end.
        wait_s = min(request.wait_s, _MOST_WAIT_S) if request.wait_s > 0 else 0.0
        manifests = [
            dump_manifest(manifest) for manifest in self._store.plan(request.have, wait_s)[:_MOST_CHAIN]
        ]
        self._link.send_message(Manifests([len(manifest) for manifest in manifests]))
        for manifest in manifests:
            self._link.send(manifest)

    def _part(self, request: PartRequest) -> None:
        try:
            if self._reading is None or self._open_version != (request.number, request.base):
                # The new version is opened before the old one is closed, so that a failure changes nothing.
                opened = self._store.open(request.number, request.base)
                if self._reading is not None:
                    self._reading.close()
                self._reading, self._open_version = opened, (request.number, request.base)
            if request.raw and request.base is None:
                size, pieces = self._reading.raw_part(request.index)
            else:
                data = self._reading.part(request.index)
                size, pieces = len(data), iter([data])
        except VersionEvicted as gone:
            self._link.send_message(FetchFailure(str(gone), evicted=True))
            return
        self._link.send_message(PartHeader(size))
        for piece in pieces:
            self._link.send(piece)
