"""The wire between a program and its interactor: every byte passes through here and is counted.

In between, so that one side's end is seen by the other as end of file and nothing else: what is still
written to a side that has left is dropped, and kills nobody.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

_CHUNK = 1 << 16


class Relay:
    """Two sockets to hand out, and a thread for each direction between them. A context manager."""

    def __init__(self, program_bytes: int, interactor_bytes: int) -> None:
        """The most that the program, and the interactor, may write before the relay stops carrying."""
        self._near_program, self.program_end = socket.socketpair()
        self._near_interactor, self.interactor_end = socket.socketpair()
        self._from_program = _Direction(self._near_program, self._near_interactor, program_bytes)
        self._from_interactor = _Direction(self._near_interactor, self._near_program, interactor_bytes)

    @property
    def program_flooded(self) -> bool:
        """The program wrote more than it may."""
        return self._from_program.flooded

    @property
    def interactor_flooded(self) -> bool:
        """The interactor wrote more than it may."""
        return self._from_interactor.flooded

    def __enter__(self) -> Relay:
        self._from_program.start()
        self._from_interactor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Both runs are over, or never began: nobody is left to write."""
        for end in (self.program_end, self.interactor_end):
            end.close()
        for near in (self._near_program, self._near_interactor):
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
        for direction in (self._from_program, self._from_interactor):
            direction.join()
        self._near_program.close()
        self._near_interactor.close()


class _Direction(threading.Thread):
    """Carries from one socket to the other until the source's end of file, then passes that on."""

    def __init__(self, source: socket.socket, sink: socket.socket, most: int) -> None:
        super().__init__(name="relay", daemon=True)
        self._source, self._sink, self._left = source, sink, most
        self.flooded = False

    def run(self) -> None:
        there = True
        while data := self._receive():
            self._left -= len(data)
            if self._left < 0:
                self.flooded = True
                with contextlib.suppress(OSError):
                    self._source.shutdown(socket.SHUT_RD)
                break
            there = there and self._send(data)
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)

    def _receive(self) -> bytes:
        try:
            return self._source.recv(_CHUNK)
        except OSError:  # closed with unread bytes: an end like any other
            return b""

    def _send(self, data: bytes) -> bool:
        try:
            self._sink.sendall(data)
        except OSError:
            return False
        return True
