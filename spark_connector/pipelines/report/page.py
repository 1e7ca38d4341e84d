"""A report as one HTML page that needs nothing else: style and plots are inside, no script, no link out.

It reads from the top: what was looked at, the sums, a line for each subject, then each subject with
its plots, its longest silences, its most frequent keys, and its hours as a table. It follows the
reader's setting of light or dark. All that comes from messages and names is escaped: a key may hold
anything, also HTML.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kumquat.spark.pipelines.common.summary import count, duration, size
from kumquat.spark.pipelines.report.facts import (
    HOUR_MS,
    KEYS,
    Report,
    SubjectFacts,
    clock,
    hour_cells,
    milliseconds,
    rate,
    timeless_text,
)
from kumquat.spark.pipelines.report.plots import (
    COUNT,
    LENGTH,
    OCTETS,
    TimeAxis,
    bars,
    lines,
    sparkline,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SILENCES_SHOWN = 5
SHADED_SHARE = 0.01
"""A silence of at least this share of the whole time is a band in the plot."""
_STYLE = """
:root { color-scheme: light dark; --page: #fbfaf7; --card: #ffffff; --ink: #22252a; --soft: #646a73;
  --rule: #e3e1db; --bar: #e07b1a; --second: #2f6f9f; --band: #8d93a01f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #16181c; --card: #1e2126; --ink: #e8e6e1;
  --soft: #9ba1ab; --rule: #32363d; --bar: #f0953a; --second: #6fb1e0; --band: #aab2c01c;
  --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 76rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; } h2 { margin: 0; font-size: 1.2rem; overflow-wrap: anywhere; }
h3 { margin: 0 0 .3rem; font-size: .85rem; font-weight: 600; color: var(--soft); }
p { margin: .2rem 0; } .soft { color: var(--soft); } .bad { color: var(--bad); font-weight: 600; }
section, .cards > div { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
section { padding: 1.1rem 1.25rem; margin-top: 1.25rem; }
.cards { display: grid; gap: .75rem; margin-top: 1.25rem;
  grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); }
.cards > div { padding: .7rem .9rem; } .cards b { display: block; font-size: 1.3rem; }
.cards span { color: var(--soft); font-size: .85rem; }
.plots { display: grid; gap: 1rem 1.5rem; margin-top: .9rem;
  grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-size: .8rem; font-weight: 600; vertical-align: bottom;
  white-space: normal; }
th.name, td.name { text-align: left; }
td.name a, td.key { overflow: hidden; text-overflow: ellipsis; }
td.name a { display: inline-block; max-width: 11rem; vertical-align: bottom; }
td.key { text-align: left; max-width: 14rem; }
a { color: inherit; } summary { cursor: pointer; color: var(--soft); margin-top: .9rem; }
svg.plot { width: 100%; height: auto; display: block; } svg.spark { width: 6rem; height: 1.4rem; }
.bar { fill: var(--bar); } .silence { fill: var(--band); }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
.tick { fill: var(--soft); font: 11px system-ui, sans-serif; }
.line { fill: none; stroke-width: 1.8; }
.line.p50 { stroke: var(--second); } .point.p50 { fill: var(--second); }
.line.p99 { stroke: var(--bar); } .point.p99 { fill: var(--bar); }
.swatch { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; }
.swatch.p50 { background: var(--second); } .swatch.p99 { background: var(--bar); }
.share { height: .55rem; border-radius: 2px; background: var(--bar); min-width: 1px; }
td.bars { width: 45%; }
@media (max-width: 36rem) { .tick { font-size: 14px; } body { padding: 1rem .6rem 3rem; }
  section { padding: .9rem .8rem; } td.name a, td.key { max-width: 9rem; } td.bars { width: 25%; } }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""


def page(report: Report) -> str:
    parts = [_head(report)]
    if report.subjects:
        axis = TimeAxis.covering(report.start_ms, report.end_ms, report.slot_ms)
        parts += [_cards(report), _overview(report, axis)]
        parts += [_subject(number, facts, axis) for number, facts in enumerate(report.subjects)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Kumquat report: {escape(_names(report))}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{''.join(parts)}</body></html>\n"
    )


def _names(report: Report) -> str:
    names = [subject.name for subject in report.subjects]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _head(report: Report) -> str:
    lines_ = [f"<h1>Kumquat report</h1>\n<p>{escape(report.source)}</p>"]
    if report.subjects:
        start, end = report.start_ms, report.end_ms
        span = duration((end - start) / 1000)
        lines_.append(f"<p>{clock(start)} to {clock(end)} UTC ({span})</p>")
    else:
        lines_.append("<p>There is no message in the range.</p>")
    if report.empty:
        lines_.append(f'<p class="soft">Without a message: {escape(", ".join(report.empty))}</p>')
    if report.timeless:
        lines_.append(f'<p class="soft">Left out: {escape(timeless_text(report))}</p>')
    lines_.append(f'<p class="soft">Written {clock(report.written_ms)} UTC. All times are UTC.</p>')
    return f"<header>{''.join(lines_)}</header>\n"


def _cards(report: Report) -> str:
    seconds = max((report.end_ms - report.start_ms) / 1000, 1.0)
    delayed = [s for s in report.subjects if s.total.delayed]
    cards = [
        (count(report.messages), "messages"),
        (size(report.octets), "of keys and values"),
        (rate(report.messages / seconds), "on average"),
        (count(len(report.subjects)), "subject" if len(report.subjects) == 1 else "subjects"),
    ]
    if delayed:
        worst = max(s.total.late_p99 or 0 for s in delayed)
        cards.append((count(sum(s.total.delayed for s in delayed)), "delayed messages delivered"))
        cards.append((milliseconds(worst), "late at p99, worst subject"))
    shown = "".join(f"<div><b>{value}</b><span>{what}</span></div>" for value, what in cards)
    return f'<div class="cards">{shown}</div>\n'


def _overview(report: Report, axis: TimeAxis) -> str:
    heads = ["subject", "", "messages", "rate", "busiest second", "volume", "size p50"]
    heads += ["largest", KEYS, "longest silence"]
    delayed = any(subject.total.delayed for subject in report.subjects)
    if delayed:
        heads += ["delayed", "late p99"]
    rows = []
    for number, subject in enumerate(report.subjects):
        total = subject.total
        name = escape(subject.name)
        link = f'<a href="#s{number}" title="{name}">{name}</a>'
        shape = sparkline(axis, _messages(subject), f"messages over time, {subject.name}")
        cells = [count(total.messages), rate(subject.rate), count(subject.busiest[0])]
        cells += [size(total.octets), size(total.size_p50), size(total.largest)]
        cells += [count(total.keys), _longest(subject)]
        if delayed:
            cells += [count(total.delayed) if total.delayed else "", milliseconds(total.late_p99)]
        rows.append([link, shape, *cells])
    return f"<section><h2>Subjects</h2>{_table(heads, rows)}</section>\n"


def _subject(number: int, subject: SubjectFacts, axis: TimeAxis) -> str:
    slot = _slot_name(axis.slot_ms)
    octets = {start: figures.octets for start, figures in subject.slots.items()}
    least = SHADED_SHARE * (axis.end_ms - axis.start_ms) / 1000
    shaded = [silence for silence in subject.silences if silence.seconds >= least]
    messages = bars(axis, _messages(subject), f"messages per {slot}", COUNT, shaded)
    blocks = [
        _block(f"Messages per {slot}" + (", silences shaded" if shaded else ""), messages),
        _block(f"Volume per {slot}", bars(axis, octets, f"volume per {slot}", OCTETS)),
    ]
    if subject.total.delayed:
        blocks.append(_lateness(subject, axis, slot))
    if subject.top_keys:
        blocks.append(_keys(subject))
    if subject.silences:
        blocks.append(_silences(subject))
    return (
        f'<section id="s{number}"><h2>{escape(subject.name)}</h2>{_sentence(subject)}'
        f'<div class="plots">{"".join(blocks)}</div>{_hours(subject)}</section>\n'
    )


def _sentence(subject: SubjectFacts) -> str:
    total = subject.total
    when = clock(subject.busiest[1], "%d %b %H:%M:%S")
    keys = f"About {count(total.keys, 'different key')}"
    if total.keyless == total.messages:
        keys = "None has a key"
    elif total.keyless:
        keys += f"; {count(total.keyless, 'message')} without a key"
    sentences = [
        f"{count(total.messages, 'message')}. Sizes: p50 {size(total.size_p50)},",
        f"p99 {size(total.size_p99)}, largest {size(total.largest)}.",
        f"The busiest second had {count(subject.busiest[0])} ({when}).",
        f"{keys}.",
    ]
    if subject.holes:
        sentences.append(f"{count(subject.holes, 'offset')} in between without a message.")
    sentence = f'<p class="soft">{" ".join(sentences)}</p>'
    if total.early:
        early = f"{count(total.early, 'delayed message')} came before the time they were due."
        sentence += f'<p class="bad">{early}</p>'
    return sentence


def _lateness(subject: SubjectFacts, axis: TimeAxis, slot: str) -> str:
    late = {start: figures for start, figures in subject.slots.items() if figures.delayed}
    series = [
        ("p50", "p50", {start: max(f.late_p50 or 0, 0.0) for start, f in late.items()}),
        ("p99", "p99", {start: max(f.late_p99 or 0, 0.0) for start, f in late.items()}),
    ]
    total = subject.total
    figures = (total.late_p50, total.late_p99, total.late_max)
    p50, p99, most = map(milliseconds, figures)
    legend = (
        f'<p class="soft">{count(total.delayed)} delayed: '
        f'<i class="swatch p50"></i> p50 {p50}, <i class="swatch p99"></i> p99 {p99}, '
        f"at most {most}</p>"
    )
    plot = lines(axis, series, f"lateness per {slot}", LENGTH)
    return _block(f"Lateness of delayed messages per {slot}", plot + legend)


def _keys(subject: SubjectFacts) -> str:
    most = subject.top_keys[0][1]
    rows = [
        f'<tr><td class="key" title="{escape(key)}">{escape(key)}</td><td>{count(number)}</td>'
        f"<td>{_share(number / subject.total.messages)}</td>"
        f'<td class="bars"><div class="share" style="width:{number / most:.0%}"></div></td></tr>'
        for key, number in subject.top_keys
    ]
    return _block("Most frequent keys", f'<div class="wide"><table>{"".join(rows)}</table></div>')


def _share(part: float) -> str:
    return f"{part:.1%}" if part >= 0.001 else "&lt;0.1%"


def _silences(subject: SubjectFacts) -> str:
    rows = [
        [clock(silence.start_ms), clock(silence.end_ms), duration(silence.seconds)]
        for silence in subject.silences[:SILENCES_SHOWN]
    ]
    return _block("Longest silences", _table(["from", "to", "lasting"], rows))


def _hours(subject: SubjectFacts) -> str:
    heads = ["hour", "messages", "rate", "volume", "size p50", "largest", KEYS]
    heads += ["longest silence"]
    if subject.total.delayed:
        heads += ["delayed", "late p50", "late p99", "late max"]
    rows = [
        [escape(cell) for cell in hour_cells(subject, hour)[1 : len(heads) + 1]]
        for hour in sorted(subject.hours)
    ]
    title = count(len(rows), "hour")
    return f"<details><summary>By hour ({title})</summary>{_table(heads, rows)}</details>"


def _block(title: str, inside: str) -> str:
    return f"<div><h3>{escape(title)}</h3>{inside}</div>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is aligned to the left; cells are HTML already."""

    def row(tag: str, cells: Sequence[str]) -> str:
        first = f'<{tag} class="name">{cells[0]}</{tag}>'
        return f"<tr>{first}{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells[1:])}</tr>"

    body = "\n".join(row("td", cells) for cells in rows)
    return f'<div class="wide"><table>{row("th", heads)}\n{body}</table></div>'


def _messages(subject: SubjectFacts) -> dict[int, float]:
    return {start: figures.messages for start, figures in subject.slots.items()}


def _longest(subject: SubjectFacts) -> str:
    return duration(subject.silences[0].seconds) if subject.silences else ""


def _slot_name(slot_ms: int) -> str:
    """second, 10 seconds, minute, 5 minutes, hour, day, …: the words after "per"."""
    for unit, name in (
        (24 * HOUR_MS, "day"),
        (HOUR_MS, "hour"),
        (60_000, "minute"),
        (1000, "second"),
    ):
        if slot_ms % unit == 0:
            number = slot_ms // unit
            return name if number == 1 else f"{number} {name}s"
    raise ValueError(f"a slot of {slot_ms} ms is no whole number of seconds")
