"""Relay all bytes between a program and its interactor, and count them.

With a relay, a process sees the exit of the other one only as end of file. Bytes for a process that has
exited are dropped, so the writer gets no SIGPIPE.

If the program crashed or exceeded a limit, the interactor sees end of file only when it waits for more data
than there is. So an interactor that exits before has decided from the program's output, and the verdict does
not depend on which process was faster.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from hashlib import blake2b

from whetstone.sandbox import EndReason, SandboxRun
from whetstone.sandbox.streams import link_to_program

OutputDigest = tuple[int, bytes]
"""The number of bytes that a process wrote, and their digest."""
_CHUNK = 1 << 16
_POLL_INTERVAL_S = 0.005
# The interactor counts as waiting after this number of consecutive polls that find it asleep. One poll could
# find it asleep for another reason.
_WAITING_POLLS = 5
# If a program still runs this long after the end of its output, it has closed its output itself.
_EXIT_GRACE_S = 0.5


class Relay:
    """Two sockets for the two processes, and a thread for each direction between them. A context manager."""

    def __init__(
        self, program_bytes: int, interactor_bytes: int, expected: OutputDigest | None = None
    ) -> None:
        """``program_bytes`` and ``interactor_bytes`` limit the output of each process.

        ``expected`` is the ``output_digest`` of an earlier run, with which the program's output must begin.
        """
        self.saw_end = False
        """Whether the interactor was still running when it got the end of the program's output."""
        self.saw_crash = False
        """Whether the program had then crashed or exceeded a limit."""
        self._near_program, self.program_end = link_to_program()
        self._near_interactor, self.interactor_end = socket.socketpair()
        self._from_program = _Direction(
            self._near_program, self._near_interactor, program_bytes, self._wait_before_end, expected
        )
        self._from_interactor = _Direction(
            self._near_interactor, self._near_program, interactor_bytes, lambda: None
        )
        self._started = threading.Event()
        self._over = threading.Event()
        self._program: SandboxRun | None = None
        self._interactor: SandboxRun | None = None

    def started(self, program: SandboxRun, interactor: SandboxRun) -> None:
        """Set the two runs. Their states decide when the end of the output is passed on."""
        self._program, self._interactor = program, interactor
        self._started.set()

    @property
    def output_digest(self) -> OutputDigest:
        """The number of bytes that the program has written, and their digest.

        Final once the relay is closed.
        """
        return self._from_program.output_digest()

    @property
    def output_as_expected(self) -> bool:
        """Whether the program's output began as expected. Final once the relay is closed."""
        return self._from_program.as_expected

    @property
    def program_flooded(self) -> bool:
        """Whether the program wrote more than allowed."""
        return self._from_program.flooded

    @property
    def interactor_flooded(self) -> bool:
        """Whether the interactor wrote more than allowed."""
        return self._from_interactor.flooded

    def _wait_before_end(self) -> None:
        """Wait until the end of the program's output may be passed on to the interactor."""
        self._started.wait()
        program, interactor = self._program, self._interactor
        if program is None or interactor is None:
            return
        # A process's output ends shortly before the process, so wait for the result of a run that is ending.
        deadline = time.monotonic() + _EXIT_GRACE_S
        while not program.ended and (program.killed or time.monotonic() < deadline):
            if self._over.wait(_POLL_INTERVAL_S / 5):
                return
        dead = self.program_flooded
        if program.ended:
            result = program.result()
            dead |= result.ended is not EndReason.EXITED or result.exit_code != 0
        # After a crash, wait until the interactor has read all output and waits for more. Its decision then
        # does not depend on when the crash happened.
        polls_asleep = 0
        while dead and polls_asleep < _WAITING_POLLS and not self._has_exited(interactor):
            if self._over.wait(_POLL_INTERVAL_S):
                return
            polls_asleep = polls_asleep + 1 if _is_asleep(interactor.pid) else 0
        if not self._has_exited(interactor):
            self.saw_end, self.saw_crash = True, dead

    def _has_exited(self, interactor: SandboxRun) -> bool:
        return interactor.ended or self._from_interactor.ended

    def __enter__(self) -> Relay:
        self._from_program.start()
        self._from_interactor.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Close all sockets. Both runs have ended, or never began, so there is no writer."""
        self._over.set()
        self._started.set()
        for end in (self.program_end, self.interactor_end):
            end.close()
        for near in (self._near_program, self._near_interactor):
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
        for direction in (self._from_program, self._from_interactor):
            direction.join()
        self._near_program.close()
        self._near_interactor.close()


def _is_asleep(pid: int) -> bool:
    """Return whether a process sleeps. False for one that does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"S"
    except OSError:
        return False


class _Direction(threading.Thread):
    """Copies from one socket to the other until end of file, and then closes the other one for writing."""

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        max_bytes: int,
        before_end: Callable[[], None],
        expected: OutputDigest | None = None,
    ) -> None:
        super().__init__(name="relay", daemon=True)
        self._count, self._digest, self._expected = 0, blake2b(digest_size=16), expected
        self.as_expected = expected is None or expected == self.output_digest()
        self._source, self._sink, self._bytes_left, self._before_end = source, sink, max_bytes, before_end
        self.flooded = self.ended = False

    def run(self) -> None:
        sink_open = True
        while data := self._receive():
            self._update_digest(data)
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self.flooded = True
                with contextlib.suppress(OSError):
                    self._source.shutdown(socket.SHUT_RD)
                break
            # A sink that was closed gets nothing more, but reading goes on: the writer must not block.
            sink_open = sink_open and self._send(data)
        self.ended = True
        self._before_end()
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)

    def output_digest(self) -> OutputDigest:
        """Return the number of received bytes and their digest."""
        return self._count, self._digest.digest()

    def _update_digest(self, data: bytes) -> None:
        if self._expected is not None and self._count < self._expected[0] <= self._count + len(data):
            prefix = self._digest.copy()
            prefix.update(data[: self._expected[0] - self._count])
            self.as_expected = prefix.digest() == self._expected[1]
        self._digest.update(data)
        self._count += len(data)

    def _receive(self) -> bytes:
        try:
            return self._source.recv(_CHUNK)
        # The process closed its end with unread bytes, which counts as end of file.
        except OSError:
            return b""

    def _send(self, data: bytes) -> bool:
        try:
            self._sink.sendall(data)
        except OSError:
            return False
        return True
