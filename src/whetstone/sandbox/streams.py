"""Bytes that enter and leave a run: sealed files, capped pipes, and named links."""

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
    """The reading end of a pipe from the child. Keeps the first or the last bytes, up to a cap."""

    def __init__(self, fd: int, cap: int, *, keep_last: int | None = None) -> None:
        self.fd = fd
        self.open = True
        self._cap = cap
        self._keep_last = keep_last
        # One array: a program can make the pieces arbitrarily small.
        self._kept = bytearray()
        self._total = 0

    @property
    def is_over(self) -> bool:
        """Whether more was written than the cap allows."""
        return self._total > self._cap

    def read(self) -> bool:
        """Read the available bytes. False at the end of the stream, or if there are none now."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
            return False
        self._total += len(chunk)
        self._keep(chunk)
        return len(chunk) == _CHUNK

    def _keep(self, chunk: bytes) -> None:
        if self._keep_last is None:
            if self._total - len(chunk) < self._cap:
                self._kept += chunk
            return
        self._kept += chunk
        if len(self._kept) > 2 * self._keep_last:
            del self._kept[: -self._keep_last]

    def bytes(self) -> bytes:
        """Return the kept bytes."""
        with memoryview(self._kept) as kept:
            return bytes(kept[: self._cap] if self._keep_last is None else kept[-self._keep_last :])

    def close(self) -> None:
        """Close the descriptor."""
        if self.open:
            self.open = False
            os.close(self.fd)


def sealed_file(data: bytes) -> int:
    """Return a new anonymous, immutable file, positioned at its beginning."""
    fd = os.memfd_create("run", _MFD)
    view = memoryview(data)
    at = 0
    while at < len(view):
        at += os.pwrite(fd, view[at:], at)
    # Sealed, so that a program cannot change the payload of the next run or its own input.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def link_to_program() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, the second for a program.

    The second has a random name already. It is in the network namespace of the machine. A name that the
    program chose would be visible to the programs of all other sandboxes.
    """
    own_end, program_end = socket.socketpair()
    program_end.bind(b"\0" + os.urandom(_NAME_BYTES))
    return own_end, program_end


class PayloadFile:
    """The sealed file of the last payload. Consecutive cases of a program have the same payload.

    Runs read it at explicit offsets, so they share no position, and never pass it to a program.
    """

    def __init__(self) -> None:
        self._data = b""
        self._fd = -1

    def descriptor_of(self, data: bytes) -> int:
        """Return a descriptor of a file with these bytes. It still belongs to this object."""
        if self._fd < 0 or data != self._data:
            self.close()
            self._fd = sealed_file(data)
            self._data = data
        return self._fd

    def release_large(self) -> None:
        """Close a large file after the fork-server has received its descriptor."""
        if len(self._data) > _KEPT_BYTES:
            self.close()

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._data = -1, b""
