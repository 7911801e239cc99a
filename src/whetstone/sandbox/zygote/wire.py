"""The messages between the fork-server and the process that drives it, and the descriptors beside them.

One message is one packet of a SOCK_SEQPACKET socket pair. No run's data passes through it: a request
carries limits and descriptors, a report carries a wait status and what the run cost.
"""

from __future__ import annotations

import struct

REQUEST = struct.Struct("=cIHBIQ")
"""RUN, run number, harness number, has a link (0/1), CPU backstop in s, memory bytes.

Beside it travel descriptors in the order of the ``*_FD`` numbers below, the link only if there is one.
"""

REPORT = struct.Struct("=cIiQQB")
"""ENDED, run number, wait status, CPU microseconds, peak resident bytes, confined (0/1).

After it, the UTF-8 text of the set-up step that was refused, or nothing.
"""

QUESTION = struct.Struct("=cI")
"""PIDFD and a run number: asks for the run's pidfd, which comes back beside the same message."""

RUN, PIDFD, ENDED, READY, REFUSED = b"R", b"P", b"E", b"+", b"-"
"""READY and REFUSED open a fork-server's first message; the rest of it is UTF-8 text."""

MAX_PACKET = 16384

# The fork-server keeps everything of its own at high numbers, so that what it receives always gets
# these, which are also what the program sees.
PAYLOAD_FD, STDIN_FD, STDOUT_FD, STDERR_FD, RESULT_FD, LINK_FD = 3, 4, 5, 6, 7, 8
FIRST_PRIVATE_FD = 64
