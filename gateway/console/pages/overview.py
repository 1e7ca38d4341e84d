"""/: the first page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.charts import line
from kumquat.gateway.console.views.overview import overview

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

SAMPLED = 50
"""Groups with the greatest lag whose lag is kept over time."""


async def show(visit: Visit) -> Response:
    console = visit.console
    snapshot = await console.snapshots.get()
    for row in snapshot.top[:SAMPLED]:
        console.lags.add(row.name, snapshot.at, row.lag)
    samples = console.snapshots.samples
    return await visit.page(
        "overview.html",
        "overview",
        found=await overview(visit.broker, snapshot),
        chart_in=line([(s.at, s.rate_in) for s in samples], "Messages in, each second"),
        chart_out=line([(s.at, s.rate_out) for s in samples], "Messages done, each second", "good"),
        chart_lag=line([(s.at, float(s.lag)) for s in samples], "Lag over all groups", "warm"),
    )
