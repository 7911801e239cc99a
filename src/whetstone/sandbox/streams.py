"""The bytes that go into a run and come out of it: sealed files, capped pipes, and named links."""

from __future__ import annotations

import fcntl
import os
import socket

_CHUNK = 1 << 16
_MFD = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_KEPT_BYTES = 1 << 20
_NAME_BYTES = 16


class Stream:
    """The reading end of a pipe from the child: keeps the first bytes, or the last, up to a cap."""

    def __init__(self, fd: int, cap: int, *, keep_last: int | None = None) -> None:
        self.fd = fd
        self.open = True
        self._cap = cap
        self._keep_last = keep_last
        # One array: a program can make the pieces that are read as small as it likes.
        self._kept = bytearray()
        self._total = 0

    @property
    def over(self) -> bool:
        """More was written than the cap allows."""
        return self._total > self._cap

    def read(self) -> bool:
        """Read what is there; False at the end of the stream, or when there is no more now."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        self._total += len(chunk)
        if self._keep_last is not None:
            self._keep_end(chunk, self._keep_last)
        elif self._total - len(chunk) < self._cap:
            self._kept += chunk
        return len(chunk) == _CHUNK

    def _keep_end(self, chunk: bytes, size: int) -> None:
        self._kept += chunk
        if len(self._kept) > 2 * size:
            del self._kept[:-size]

    def bytes(self) -> bytes:
        """What was kept."""
        with memoryview(self._kept) as kept:
            return bytes(kept[: self._cap] if self._keep_last is None else kept[-self._keep_last :])

    def close(self) -> None:
        """Give the descriptor back."""
        if self.open:
            self.open = False
            os.close(self.fd)


def sealed_file(data: bytes) -> int:
    """A fresh anonymous file that nobody can change any more, at its beginning."""
    fd = os.memfd_create("run", _MFD)
    view = memoryview(data)
    at = 0
    while at < len(view):
        at += os.pwrite(fd, view[at:], at)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def link_to_program() -> tuple[socket.socket, socket.socket]:
    """Two joined sockets, of which the second is for a program.

    That one has a name already, drawn at random: it is a socket of this machine's network, and whatever name
    a program gave it there would be seen by the programs of all other sandboxes, since it is taken for them.
    """
    ours, theirs = socket.socketpair()
    theirs.bind(b"\0" + os.urandom(_NAME_BYTES))
    return ours, theirs


class PayloadFile:
    """The sealed file of the last payload: the cases of a program have the same one after another.

    Runs read it at given places, so that they do not share a position, and never hand it to a program.
    """

    def __init__(self) -> None:
        self._data = b""
        self._fd = -1

    def holding(self, data: bytes) -> int:
        """A descriptor of a file with these bytes, which stays ours."""
        if self._fd < 0 or data != self._data:
            self.close()
            self._fd = sealed_file(data)
            self._data = data
        return self._fd

    def sent(self) -> None:
        """The other side has it: a large one is let go."""
        if len(self._data) > _KEPT_BYTES:
            self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._data = -1, b""
