"""A shelf behind a TCP port: one thread for each connection, each reading one version at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Self

from whetstone.addresses import host_port, is_loopback
from whetstone.errors import UserError
from whetstone.weights.codec import Damaged
from whetstone.weights.manifest import dump
from whetstone.weights.settings import TOKEN_VARIABLE
from whetstone.weights.shelf import Reading, Shelf
from whetstone.weights.source import Gone
from whetstone.weights.wire import Asked, AskPart, AskPlan, Failed, Link, Manifests, Part

_MOST_WAIT_S = 30.0
_MOST_CHAIN = 64


def check_listening(host: str, port: int, token: str) -> None:
    """Raise UserError, as a TcpServer would, for an address that cannot be had, or not without a token."""
    _listen(host, port, token).close()


def _listen(host: str, port: int, token: str) -> socket.socket:
    if not token and not is_loopback(host):
        raise UserError(
            f"weights would be given to all who can reach {host}: give a token ({TOKEN_VARIABLE}), or "
            "listen on 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"{host}:{port}: cannot listen for replicas: {why}; name another port (`flow.weights.port`, or "
            "--weights-port) or host"
        ) from None


class TcpServer:
    """Serves ``shelf`` until it is closed. ``port`` 0 takes a free one, which :attr:`port` then is.

    token: what replicas must know; required unless only this machine can reach ``host``. silence_s: after
    which a connection that asks for nothing, or takes nothing, is ended. connections: at most of replicas
    that have proved that they know the token; one too many is ended at once. greetings: at most of others,
    each of which has ``greeting_s``; one too many ends the oldest, so that silent ones keep nobody out.
    Raises UserError for an address that cannot be had.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        silence_s: float = 60.0,
        connections: int = 256,
        greetings: int = 64,
        greeting_s: float = 2.0,
    ) -> None:
        self._shelf, self._token, self._silence_s = shelf, token, silence_s
        self._room = threading.BoundedSemaphore(connections)
        self._greetings, self._greeting_s = greetings, greeting_s
        self._greeting: dict[Link, None] = {}
        """Those that have not proved anything yet, the oldest first."""
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listening = _listen(host, port, token)
        self.host, self.port = host, int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="weights-tcp", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT, as a replica on this machine would give it."""
        return host_port(self.host, self.port)

    def close(self) -> None:
        """End every connection, and listen no more."""
        with self._lock:
            self._closed = True
            links = [*self._links, *self._greeting]
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for link in links:
            link.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                # Out of descriptors, say: those who are there may end.
                if not self._closed:
                    threading.Event().wait(0.1)
                continue
            link = Link(connection, self._silence_s)
            with self._lock:
                self._greeting[link] = None
                oldest = next(iter(self._greeting)) if len(self._greeting) > self._greetings else None
                if oldest is not None:
                    del self._greeting[oldest]
            if oldest is not None:
                oldest.close()
            threading.Thread(target=self._serve, args=(link,), name="weights-link", daemon=True).start()

    def _serve(self, link: Link) -> None:
        """One connection, whatever it sends: the worst that it can cause is its own end."""
        try:
            with contextlib.suppress(OSError, Damaged):
                if link.admit(self._token, self._greeting_s) and self._room.acquire(blocking=False):
                    try:
                        self._converse(link)
                    finally:
                        self._room.release()
        finally:
            with self._lock:
                self._greeting.pop(link, None)
                self._links.discard(link)
            link.close()

    def _converse(self, link: Link) -> None:
        """Serve a replica that knows the token. Raises OSError, Damaged."""
        with self._lock:
            if link not in self._greeting:
                return  # it was ended meanwhile
            del self._greeting[link]
            self._links.add(link)
        _Conversation(link, self._shelf, self._silence_s).hold()


class _Conversation:
    def __init__(self, link: Link, shelf: Shelf, silence_s: float) -> None:
        self._link, self._shelf, self._silence_s = link, shelf, silence_s
        self._reading: Reading | None = None
        self._read: tuple[int, int | None] | None = None

    def hold(self) -> None:
        """Answer until the other side ends it."""
        try:
            while True:
                asked = self._link.hear(Asked, self._silence_s)  # pyright: ignore[reportArgumentType]
                if isinstance(asked, AskPlan):
                    self._plan(asked)
                else:
                    self._part(asked)
        finally:
            if self._reading is not None:
                self._reading.close()

    def _plan(self, asked: AskPlan) -> None:
        wait_s = min(max(asked.wait_s, 0.0), _MOST_WAIT_S)
        manifests = [dump(manifest) for manifest in self._shelf.plan(asked.have, wait_s)[:_MOST_CHAIN]]
        self._link.say(Manifests([len(manifest) for manifest in manifests]))
        for manifest in manifests:
            self._link.send(manifest)

    def _part(self, asked: AskPart) -> None:
        try:
            if self._reading is None or self._read != (asked.number, asked.base):
                opened = self._shelf.open(asked.number, asked.base)
                if self._reading is not None:
                    self._reading.close()
                self._reading, self._read = opened, (asked.number, asked.base)
            data = self._reading.part(asked.index)
        except Gone as gone:
            self._link.say(Failed(str(gone), gone=True))
            return
        self._link.say(Part(len(data)))
        self._link.send(data)
