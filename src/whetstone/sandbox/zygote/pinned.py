"""Pages that a fork copies at once, because every run writes to them.

A fork shares all pages and copies each one when it is first written: with a fault, in the run or in the
process that forked it, which costs more than the copy. For the few hundred pages that every run writes, since
the interpreter's most used objects and their reference counts lie there, the kernel can be had to copy them
in the fork itself: pages that are pinned for a device's direct access may not be shared. They are pinned as
the registered buffers of an io_uring, which is used for nothing else; no system call of it is open to us
once we serve, nor ever to a run.

A machine that forbids this (io_uring is switched off in many containers) only loses speed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

from . import kernel, wire
from .own_memory import PAGE

_REGISTER_BUFFERS = 0
_MOST_BUFFERS = 1024
_PARAMETERS_BYTES = 120


def open_ring() -> dict[int, int]:
    """A ring, by the number in ``wire`` that it is to get; nothing where there is none to be had.

    To be opened while we have all our rights: one of root may pin what it likes, others what RLIMIT_MEMLOCK
    says.
    """
    parameters = ctypes.create_string_buffer(_PARAMETERS_BYTES)
    with contextlib.suppress(kernel.StepRefused):
        fd = kernel.system_call("io_uring_setup", (1, ctypes.addressof(parameters)), "io_uring")
        os.set_inheritable(fd, False)
        return {wire.PINS_FD: fd}
    return {}


def pin(pages: Iterable[int]) -> None:
    """Pin these pages, given by their addresses, for as long as this process lives. Raises StepRefused."""
    spans: list[tuple[int, int]] = []
    for page in sorted(pages):
        start = spans.pop()[0] if spans and spans[-1][1] == page else page
        spans.append((start, page + PAGE))
    del spans[_MOST_BUFFERS:]
    buffers = b"".join(struct.pack("=QQ", start, end - start) for start, end in spans)
    room = ctypes.create_string_buffer(buffers, len(buffers))
    arguments = (wire.PINS_FD, _REGISTER_BUFFERS, ctypes.addressof(room), len(spans))
    kernel.system_call("io_uring_register", arguments, "pinning pages")
