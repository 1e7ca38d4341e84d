"""`python -m bench`: runs Kumquat and Apache Kafka side by side and writes bench/RESULTS.md.

    python -m bench                              everything, at full size; writes bench/RESULTS.md python
    -m bench requests start               only these; prints the tables, writes nothing python -m bench
    produce-1k --only kumquat    only this column python -m bench --quick                      small
    sizes: shows that everything runs; numbers mean nothing python -m bench --list

A scenario runs on its columns one after the other, so that numbers which are compared were measured
within a minute or two. A scenario that fails is reported and the others still run; the exit code is then
1.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
import traceback
from pathlib import Path

from bench import report
from bench.brokers.jars import SetupError
from bench.scenario import COLUMNS, FULL, QUICK, Columns, Run, Scale, Scenario
from bench.scenarios import SCENARIOS

_RESULTS = Path(__file__).parent / "RESULTS.md"
_began = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _began:7.1f} s  {text}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(names))
    keys = [column.key for column in COLUMNS]
    parser.add_argument("--only", action="append", choices=keys, help="only this column")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--log-gb", type=float, help="size of the log in long-log")
    parser.add_argument("--output", type=Path, help="write the report to this file")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parsed = parser.parse_args()
    for name in parsed.scenarios:
        if name not in names:
            parser.error(f"no scenario {name!r}; there are {', '.join(names)}")
    return parsed


def measure(scenario: Scenario, keys: list[str], scale: Scale) -> tuple[Columns, bool]:
    columns: Columns = {}
    failed = False
    for column in COLUMNS:
        if column.key in scenario.columns and column.key in keys:
            where = f"{scenario.name}, {column.title}"

            def progress(text: str, where: str = where) -> None:
                say(f"{where}: {text}")

            try:
                columns[column.key] = scenario.measure(Run(column, scale, progress))
            except (SetupError, RuntimeError, OSError) as error:
                failed = True
                say(f"{where}: FAILED: {error}")
                if not isinstance(error, SetupError):
                    traceback.print_exc()
    return columns, failed


def main() -> int:
    asked = arguments()
    if asked.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:20}{scenario.title}")
        return 0
    scale = QUICK if asked.quick else FULL
    if asked.log_gb:
        scale = dataclasses.replace(scale, log_bytes=int(asked.log_gb * 1e9))
    keys = asked.only or [column.key for column in COLUMNS]
    chosen = [each for each in SCENARIOS if not asked.scenarios or each.name in asked.scenarios]
    results, failed = [], False
    for scenario in chosen:
        columns, broken = measure(scenario, keys, scale)
        failed |= broken
        if columns:
            failed |= any(floor.must and not floor.met(columns) for floor in scenario.floors)
            results.append((scenario, columns))
            print("\n".join([*report.table(scenario, columns), ""]), flush=True)
    print("\n".join(report.floors(results)))
    whole = not (asked.scenarios or asked.only or asked.quick)
    output = asked.output or (_RESULTS if whole else None)
    if output is not None:
        report.write(output, results, scale)
        say(f"written to {output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
