"""/console/groups, /console/group and /console/group/reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kumquat.gateway.console.asking import ask
from kumquat.gateway.console.charts import line
from kumquat.gateway.console.forms import number, required
from kumquat.gateway.console.views import groups

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

RESET = "/groups/reset"


async def show_all(visit: Visit) -> Response:
    query = visit.values.get("q", "")
    if query:
        after = visit.values.get("after")
        found = await groups.search(visit.broker, query, after)
        at = None
    else:
        at = number(visit.values, "page")
        found = await groups.by_lag(await visit.console.snapshots.get(), at)
    return await visit.page("groups.html", "groups", found=found, at=at)


async def show_one(visit: Visit) -> Response:
    name = required(visit.values, "name")
    found = await groups.group_view(visit.broker, name, visit.values.get("after"))
    lags = visit.console.lags
    lags.add(name, trio.current_time(), found.row.lag)
    points = lags.of(name)
    return await visit.page(
        "group.html",
        "groups",
        found=found,
        group=found.described,
        chart=line(points, f"Lag of {name}", "warm") if any(lag for _, lag in points) else "",
        after=visit.values.get("after"),
    )


async def reset(visit: Visit) -> Response:
    """First what would happen; with `sure`, it happens. What was shown is done: the latest message, or the
    one of two hours ago, may be another one by then."""
    form = visit.form
    name, subject = required(form, "group"), required(form, "subject")
    kind, place = required(form, "where"), form.get("place")
    if kind not in ("earliest", "latest"):
        place = required(form, "place")
    where = {"time": place} if kind == "time" else {"to": place if kind == "offset" else kind}
    sure = "sure" in form
    told = await ask(
        visit.broker, "POST", RESET, group=name, subject=subject, **where, dry_run=not sure
    )
    if sure:
        said = f"{name} goes on with {subject} at offset {told['to']}."
        return visit.go("/console/group", said, name=name)
    form = {**form, "where": "offset", "place": str(told["to"])}
    return await visit.page("reset.html", "groups", told=told, form=form)
