"""/console/letters, /console/letter, and redrive and purge: each first as a dry run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.admin.times import read_past
from kumquat.gateway.console import contents
from kumquat.gateway.console.forms import number, required
from kumquat.gateway.console.views import letters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

HERE = "/console/letters"


async def show_all(visit: Visit) -> Response:
    found = await letters.letters(visit.broker, visit.values)
    chosen = letters.chosen(visit.values)
    return await visit.page(
        "letters.html", "letters", found=found, values=visit.values, chosen=chosen
    )


async def show_one(visit: Visit) -> Response:
    subject, sequence = required(visit.values, "subject"), number(visit.values, "sequence")
    found = await letters.letter(visit.broker, subject, sequence)
    value = letters.raw(found, "value")
    headers = [(each["name"], letters.raw(each, "value")) for each in found["headers"]]
    return await visit.page(
        "letter.html",
        "letters",
        letter=found,
        key=letters.raw(found, "key"),
        headers=headers,
        value=None if value is None else contents.show(value, visit.values.get("as")),
        forms=(contents.TEXT, contents.JSON, contents.HEX),
    )


async def redrive(visit: Visit) -> Response:
    return await _move(visit, "redrive")


async def purge(visit: Visit) -> Response:
    return await _move(visit, "purge")


async def _move(visit: Visit, what: str) -> Response:
    sure = "sure" in visit.form
    form = _fixed(visit.form)
    told = await letters.move(visit.broker, what, form, dry_run=not sure)
    if not sure:
        form |= {"begun": str(told.begun)}  # none that dies later
        return await visit.page("letters_move.html", "letters", told=told, what=what, form=form)
    done = "sent back" if what == "redrive" else "purged"
    said = f"{told.done:,} dead letter{'' if told.done == 1 else 's'} {done}."
    if told.refused:
        said += f" {sum(told.refused.values()):,} stayed: {'; '.join(told.refused)}."
    if told.failed:
        said += f" Then it failed: {told.failed}."
    elif not told.complete:
        said += " There are more: repeat it."
    good = not (told.refused or told.failed)
    return visit.go(HERE, said, good=good, **_back(visit))


def _fixed(form: Mapping[str, str]) -> dict[str, str]:
    """Its times as moments: what is two hours ago when it is counted is earlier than that when somebody is
    sure."""
    fixed, now = dict(form), wall_clock_ms()
    for name in ("since", "until"):
        with suppress(ValueError, OverflowError):  # the answer says what is wrong with it
            fixed[name] = str(read_past(form.get(name, ""), now))
    return fixed


def _back(visit: Visit) -> dict[str, str]:
    return letters.chosen(visit.form)
