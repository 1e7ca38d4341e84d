"""File descriptors: as many as may be had, and some that no connection may take.

Every connection is a descriptor, and so is every file of the logs. A log that cannot open a file cannot go
on, so connections leave RESERVED of them alone (a quarter, where there are few). The kernel gives the
lowest free number, so the number of a new socket says how many are in use: no counting is needed.
"""

from __future__ import annotations

import logging
import resource

RESERVED = 256
MOST = 1 << 20
"""More is of no use, and some systems make a table of all that may be."""

logger = logging.getLogger(__name__)


def raise_limit(max_connections: int) -> None:
    """Have as many as the system allows; say so where they are fewer than there may be connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    if (room := highest_socket()) < max_connections:
        logger.warning(
            "max.connections=%d, but only %d files may be open: no more than %d connections are taken; "
            "raise the limit (ulimit -n)",
            *(max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0], room),
        )


def highest_socket() -> int:
    """The descriptors that connections may have are below this number."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST
    return soft - min(RESERVED, soft // 4)
