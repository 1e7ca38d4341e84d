"""RESULTS.md: every number with its ratios, and every floor with what was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

from bench.brokers.jars import KAFKA_VERSION, java
from bench.scenario import COLUMNS, Columns, Scale, Scenario

Results = list[tuple[Scenario, Columns]]


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
    return f"{value:.2f}"


def table(scenario: Scenario, columns: Columns) -> list[str]:
    """One row a metric; behind the columns, Kumquat's number as a multiple of each Kafka's."""
    shown = [column for column in COLUMNS if column.key in columns]
    others = [column for column in shown if column.key != "kumquat" and "kumquat" in columns]
    heads = [scenario.title, *[c.title for c in shown], *[f"÷ {c.title}" for c in others]]
    lines = [_row(heads), "|---|" + "---:|" * (len(heads) - 1)]
    for metric in dict.fromkeys(name for numbers in columns.values() for name in numbers):
        values = [columns[column.key].get(metric) for column in shown]
        cells = ["" if value is None else number(value) for value in values]
        ours = columns.get("kumquat", {}).get(metric)
        for column in others:
            theirs = columns[column.key].get(metric)
            cells.append(f"{ours / theirs:.2f}" if ours is not None and theirs else "")
        lines.append(_row([metric, *cells]))
    return lines


def floors(results: Results) -> list[str]:
    lines = [_row(["floor", "limit", "measured", "met"]), "|---|---:|---:|---|"]
    for scenario, columns in results:
        for floor in scenario.floors:
            sign = "≥" if floor.at_least else "≤"
            try:
                measured, met = number(floor.value(columns)), floor.met(columns)
            except KeyError:
                measured, met = "not run", False
            name = f"{scenario.name}: {floor.what}"
            verdict = "yes" if met else "—" if measured == "not run" else "**no**"
            lines.append(_row([name, f"{sign} {number(floor.limit)}", measured, verdict]))
    return lines


def markdown(results: Results, scale: Scale) -> str:
    lines = ["# Kumquat beside Apache Kafka", "", _introduction(scale), ""]
    lines += ["## Floors", "", *floors(results), "", "## Everything measured", ""]
    for scenario, columns in results:
        lines += [*table(scenario, columns), ""]
    return "\n".join(lines)


def _introduction(scale: Scale) -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False)
    jvm = said.stderr.splitlines()[0] if said.stderr else "unknown Java"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    return f"""\
Written by `make bench` on {when} UTC, {scale.name} size. Broker and client share one machine:
{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, \
Python {platform.python_version()}, {jvm}.
Kafka is {KAFKA_VERSION}, one KRaft node with a heap of 1 GiB, as shipped (it answers before it
syncs) and synced (`log.flush.interval.messages=1`). Kumquat syncs before it answers acks=all.
MB and GB are powers of ten; "÷ Kafka" is Kumquat's number as a multiple of Kafka's. Absolute
numbers swing from run to run: only the ratios of one run count. `bench/scenarios/` tells what
each line does."""


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write(path: Path, results: Results, scale: Scale) -> None:
    path.write_text(markdown(results, scale))
