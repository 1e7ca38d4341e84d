"""Names that a shell completes: topics and groups of a running broker, if it answers at once.

A completion that waits is worse than none. So a broker that does not answer within HURRY_MS gives no names,
and whatever goes wrong is silent: a shell would print it into the line that somebody is typing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.bootstrap import DEFAULT_BOOTSTRAP, VARIABLE, admin_client

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

HURRY_MS = 500
MOST = 1000


def complete_topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, lambda client: client.list_topics())


def complete_groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _complete(
        ctx, incomplete, lambda client: [group["group_id"] for group in client.list_groups()]
    )


def _complete(ctx: click.Context, incomplete: str, find: Callable[[Any], list[str]]) -> list[str]:
    bootstrap = ctx.params.get("bootstrap") or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
    try:
        with admin_client(bootstrap, HURRY_MS) as client:
            found = find(client)
    except Exception:
        return []
    return sorted(name for name in found if name.startswith(incomplete))[:MOST]
