"""The messages between the fork-server and its client, and the descriptors that they carry.

One message is one packet of a SOCK_SEQPACKET socket pair. No data of a run passes through it. A request
carries limits and descriptors, a report carries a wait status and the cost of the run.
"""

from __future__ import annotations

import struct

REQUEST = struct.Struct("=cIHBIQQ")
"""RUN, run number, harness number, has a link (0/1), CPU backstop in s, memory bytes, payload bytes.

It carries descriptors: the standard streams, the result, the link if there is one, and a payload file.
"""

REPORT = struct.Struct("=cIiQQB")
"""ENDED, run number, wait status, CPU microseconds, peak resident bytes, confined (0/1).

The CPU time is the sum over all processes of the run, the peak is that of the largest process. If a set-up
step was refused, its name follows as UTF-8 text.
"""

# PIDFD and a run number: a request for the run's pidfd. The reply is the same message and the descriptor.
QUESTION = struct.Struct("=cI")

RUN, PIDFD, ENDED = b"R", b"P", b"E"
# A request to mount a workspace (see ``workspaces.mount``). The reply is PLACED, and a reason if it failed.
PLACE, PLACED = b"W", b"w"
# A fork-server's first message. READY: it serves. READY_IN_GROUP: it also joined the control group. Both
# carry its process table, if it has one. REFUSED: it cannot start; the reason follows as UTF-8 text.
READY, READY_IN_GROUP, REFUSED = b"+", b"#", b"-"

MAX_PACKET = 16384

# A received descriptor gets the lowest free number. The fork-server's own descriptors leave the numbers free
# that the program must have: 0 to 2, the result and the link. The payload gets the next number.
CONTROL_FD, SUPERVISOR_FD, STATUS_READ_FD, STATUS_WRITE_FD = 3, 4, 5, 6
RESULT_FD, LINK_FD = 7, 8
LOG_FD = 10
# The largest number of descriptors in a request.
MOST_FDS = 6
# The process table, until it has been sent.
TABLE_FD = 11
# The io_uring that keeps pages pinned: see `own_memory`. A run closes it with all unknown descriptors.
PINS_FD = 12
# /proc/self/maps and pagemap, until the fork-server serves.
MAPPINGS_FD, PAGES_FD = 13, 14
# An inotify watch on /tmp, and the file that sets the id of the next process, if the machine allows them.
WATCH_FD, LAST_PID_FD = 15, 16
