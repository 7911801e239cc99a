"""Copies the pages that every run writes during the fork, instead of one page fault at a time.

A fork shares all pages and copies each one at its first write. The page fault costs more than the copy. Every
run writes a few hundred pages, which contain the interpreter's most used objects and their reference counts.
The kernel copies a page during the fork if it is pinned for direct access by a device. So these pages are
pinned as registered buffers of an io_uring, which has no other use. The seccomp filters allow no io_uring
call, neither to the serving template process nor to a run.

On a machine that forbids io_uring, as many containers do, runs are only slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

from . import kernel, wire
from .smaps import PAGE

_REGISTER_BUFFERS = 0
_MOST_BUFFERS = 1024
_PARAMETERS_BYTES = 120


def open_ring() -> dict[int, int]:
    """Return ``{descriptor number in wire: open io_uring}``, or an empty dict if the machine forbids it.

    Call it before privileges are dropped: root may pin any amount, other users RLIMIT_MEMLOCK bytes.
    """
    parameters = ctypes.create_string_buffer(_PARAMETERS_BYTES)
    with contextlib.suppress(kernel.StepRefused):
        fd = kernel.system_call("io_uring_setup", (1, ctypes.addressof(parameters)), "io_uring")
        os.set_inheritable(fd, False)
        return {wire.PINS_FD: fd}
    return {}


def pin_pages(pages: Iterable[int]) -> None:
    """Pin the pages at these addresses until this process ends. Raises StepRefused."""
    # One buffer for each span of adjacent pages: the kernel limits the number of buffers.
    spans: list[tuple[int, int]] = []
    for page in sorted(pages):
        start = spans.pop()[0] if spans and spans[-1][1] == page else page
        spans.append((start, page + PAGE))
    del spans[_MOST_BUFFERS:]
    buffers = b"".join(struct.pack("=QQ", start, end - start) for start, end in spans)
    room = ctypes.create_string_buffer(buffers, len(buffers))
    arguments = (wire.PINS_FD, _REGISTER_BUFFERS, ctypes.addressof(room), len(spans))
    kernel.system_call("io_uring_register", arguments, "pinning pages")
