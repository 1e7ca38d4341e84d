"""File descriptors: as many as the system allows, and some that no connection may take.

Every connection has a descriptor, and so has every file of the logs. A log that cannot open a file has to
stop, so connections leave RESERVED descriptors alone (a quarter, where there are few). The kernel gives out
the lowest free number, so the number of a new socket says how many are in use: nothing has to be counted.
"""

from __future__ import annotations

import logging
import resource

RESERVED = 256
MOST = 1 << 20
"""More is of no use, and some systems allocate a table for as many as are allowed."""

logger = logging.getLogger(__name__)


def raise_limit(max_connections: int) -> None:
    """Raise the soft limit to the hard one; warn if that is less than `max.connections` needs."""
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
    """Connections may have the descriptors below this number."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MOST
    return soft - min(RESERVED, soft // 4)
