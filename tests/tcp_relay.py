"""TCP handed on to a port of this machine, which can be cut, or held until it is mended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


def _never(data: bytes, from_server: bool) -> bool:
    return False


class TcpRelay:
    """A relay to ``port``, to be used by ``with``.

    ``cuts`` gets each piece of data, and whether it comes from the server. It returns whether the piece is
    lost, with all connections.
    """

    def __init__(self, port: int, cuts: Callable[[bytes, bool], bool] = _never) -> None:
        self._target, self._cuts = port, cuts
        self._whole = threading.Event()
        self._whole.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.losses = 0

    def __enter__(self) -> TcpRelay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.mend()
        self._drop()

    def hold(self) -> None:
        """Keep what is sent from now on, and tell nobody."""
        self._whole.clear()

    def mend(self) -> None:
        """Hand on what was kept, and what follows."""
        self._whole.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                with self._lock:
                    self._ends |= {near, far}
                for one, other, from_server in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass, args=(one, other, from_server), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, from_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(4096):
                self._whole.wait()
                if self._cuts(data, from_server):
                    self.losses += 1
                    self._drop()
                    break
                other.sendall(data)
        self._end(one, other)
        one.close()

    def _drop(self) -> None:
        with self._lock:
            ends = list(self._ends)
        self._end(*ends)

    def _end(self, *ends: socket.socket) -> None:
        """Shut connections down. The threads that read them close them."""
        with self._lock:
            self._ends -= {*ends}
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
