"""The messages between the fork-server and the process that drives it, and the descriptors beside them.

One message is one packet of a SOCK_SEQPACKET socket pair. No run's data passes through it: a request
carries limits and descriptors, a report carries a wait status and what the run cost.
"""

from __future__ import annotations

import struct

REQUEST = struct.Struct("=cIHBIQQ")
"""RUN, run number, harness number, has a link (0/1), CPU backstop in s, memory bytes, payload bytes.

Beside it travel descriptors: standard streams, result, link if there is one, and a file with the payload.
"""

REPORT = struct.Struct("=cIiQQB")
"""ENDED, run number, wait status, CPU microseconds, peak resident bytes, confined (0/1).

The CPU time is that of all processes of the run, the peak that of the largest.

After it, the UTF-8 text of the set-up step that was refused, or nothing.
"""

QUESTION = struct.Struct("=cI")
"""PIDFD and a run number: asks for the run's pidfd, which comes back beside the same message."""

RUN, PIDFD, ENDED = b"R", b"P", b"E"
READY, READY_IN_GROUP, REFUSED = b"+", b"#", b"-"
"""A fork-server's first message: it serves, and has joined the control group that it was given or not. Beside
it travels its process table, if it has one. Or it refuses, and says why in UTF-8 text.
"""

MAX_PACKET = 16384

# A descriptor that arrives gets the lowest free number. The fork-server keeps its own where they leave
# free what the program is to have: 0 to 2, the result and the link. The payload's comes after those.
CONTROL_FD, KEEPER_FD, STATUS_READ_FD, STATUS_WRITE_FD = 3, 4, 5, 6
RESULT_FD, LINK_FD = 7, 8
LOG_FD = 10
MOST_FDS = 6
"""How many descriptors travel beside a request at most."""
TABLE_FD = 11
"""The process table, until it has been sent."""
PINS_FD = 12
"""What keeps pages pinned: see ``pinned``. A run closes it with all that it does not know."""
MAPPINGS_FD, PAGES_FD = 13, 14
"""What tells of our own memory, until we serve."""
WATCH_FD, LAST_PID_FD = 15, 16
"""What tells of changes in /tmp, and what sets the number of the next process, where these can be had."""
