"""A limit on processes and threads that is tested, also for a user who has other processes."""

from __future__ import annotations

import errno
import os
import resource

# The limit is found by trying: the kernel does not report its count of a user's processes, which includes
# those of other containers.
_MAX_TASKS = 1 << 22  # no kernel has more tasks than this


def limit_tasks(more: int, low: int) -> str | None:
    """Allow this process and its children ``more`` tasks beyond those that its user has now.

    A limit that is already ``low`` stays. It is that of the fork-server, whose user has no other processes.
    Returns the reason if that is impossible: the limit does not bind this user (root), or nothing is left to
    allow.
    """
    _, ceiling = resource.getrlimit(resource.RLIMIT_NPROC)
    if ceiling != resource.RLIM_INFINITY and ceiling <= low:
        return None
    highest = _MAX_TASKS if ceiling == resource.RLIM_INFINITY else ceiling
    if _can_start_within(0, ceiling):
        return "no limit on processes binds this user; run as another user than root"
    if not _can_start_within(highest, ceiling):
        return "this user may start no more processes; raise RLIMIT_NPROC or end some"
    refused, enough = 0, highest
    while enough - refused > 1:
        middle = (refused + enough) // 2
        if _can_start_within(middle, ceiling):
            enough = middle
        else:
            refused = middle
    limit = min(enough + more, highest)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    return None


def _can_start_within(limit: int, ceiling: int) -> bool:
    """Return whether a process can be started under this limit. It ends at once, because it has nothing to
    execute."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, ceiling))
    try:
        os.posix_spawn("/", ["/"], {})
    except OSError as error:
        return error.errno != errno.EAGAIN
    return True
