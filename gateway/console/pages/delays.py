"""/console/delays, and /cancel and /move below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.admin.times import show_time
from kumquat.gateway.console.asking import ask
from kumquat.gateway.console.charts import Bar, bars
from kumquat.gateway.console.forms import required
from kumquat.gateway.console.render import link
from kumquat.gateway.console.views.delays import delays

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

HERE = "/console/delays"


async def show(visit: Visit) -> Response:
    values = visit.values
    subject = values.get("subject")
    found = await delays(
        visit.broker,
        visit.console.hour_counts,
        subject,
        values.get("from"),
        values.get("to"),
        values.get("after"),
    )
    chart = bars(
        [
            Bar(
                show_time(hour.begin)[11:16],
                hour.pending,
                f"{hour.pending:,} due from {show_time(hour.begin)[11:16]} UTC",
                link(HERE, subject=subject, **{"from": hour.begin, "to": hour.end}),
            )
            for hour in found.hours
        ],
        "Pending messages by the hour in which they are due",
    )
    return await visit.page("delays.html", "delays", found=found, chart=chart, values=values)


async def cancel(visit: Visit) -> Response:
    subject, schedule_id = required(visit.form, "subject"), required(visit.form, "schedule_id")
    await ask(visit.broker, "POST", "/delay/cancel", subject=subject, schedule_id=schedule_id)
    said = f"Message {schedule_id} of {subject} is cancelled: it is never delivered."
    return visit.go(HERE, said, subject=visit.form.get("back"))


async def move(visit: Visit) -> Response:
    subject, schedule_id = required(visit.form, "subject"), required(visit.form, "schedule_id")
    due = required(visit.form, "due")
    told = await ask(
        visit.broker, "POST", "/delay/move", subject=subject, schedule_id=schedule_id, due=due
    )
    said = f"Message {schedule_id} of {subject} is now due at {show_time(told['due'])}."
    return visit.go(HERE, said, subject=visit.form.get("back"))
