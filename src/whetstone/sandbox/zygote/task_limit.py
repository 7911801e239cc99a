"""A limit on processes and threads that is seen to hold, also for a user who has others elsewhere."""

from __future__ import annotations

import errno
import os
import resource

# Found by trying: the kernel's count of a user's processes is told nowhere, and other containers add to it.
_MOST = 1 << 22  # more tasks than this no kernel has


def limit_tasks(more: int, low: int) -> str | None:
    """Allow this process, and what it starts, so many tasks beyond those that its user has now.

    A limit that is ``low`` already stays: it is the fork-server's, whose user has no others.
    Returns why that cannot be done: the limit does not bind this user (root), or leaves nothing to allow.
    """
    _, ceiling = resource.getrlimit(resource.RLIMIT_NPROC)
    if ceiling != resource.RLIM_INFINITY and ceiling <= low:
        return None
    highest = _MOST if ceiling == resource.RLIM_INFINITY else ceiling
    if _may_start_within(0, ceiling):
        return "no limit on processes holds for this user: run as another one than root"
    if not _may_start_within(highest, ceiling):
        return "this user may start no more processes"
    refused, enough = 0, highest
    while enough - refused > 1:
        middle = (refused + enough) // 2
        if _may_start_within(middle, ceiling):
            enough = middle
        else:
            refused = middle
    limit = min(enough + more, highest)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    return None


def _may_start_within(limit: int, ceiling: int) -> bool:
    """Whether a process can be started under this limit. It ends at once, with nothing to execute."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, ceiling))
    try:
        os.posix_spawn("/", ["/"], {})
    except OSError as error:
        return error.errno != errno.EAGAIN
    return True
