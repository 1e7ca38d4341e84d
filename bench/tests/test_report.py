"""A floor that is missed, or was not measured, must not read as met."""

from __future__ import annotations

from bench import report
from bench.scenario import QUICK, Columns, Numbers, Run, Scenario, own, ratio, share


def measured(_: Run) -> Numbers:
    return {}


SCENARIO = Scenario(
    "example",
    "An example",
    measured,
    [
        ratio("MB/s", "kafka", at_least=1.5),
        ratio("p99 ms", "kafka-synced", at_most=1.0),
        own("start, s", at_most=1.0),
        share("rate with all", "rate with 10", at_least=0.8),
    ],
)
COLUMNS: Columns = {
    "kumquat": {
        "MB/s": 300.0,
        "p99 ms": 2.0,
        "start, s": 1.0,
        "rate with 10": 100.0,
        "rate with all": 79.0,
    },
    "kafka": {"MB/s": 200.0, "p99 ms": 1.0},
}


def test_floors_are_judged_by_their_own_direction() -> None:
    rows = report.floors([(SCENARIO, COLUMNS)])[2:]
    assert [row.split(" | ")[-1] for row in rows] == ["yes |", "— |", "yes |", "**no** |"]
    columns = {**COLUMNS, "kafka-synced": {"p99 ms": 1.5}}
    assert "| 1.33 | **no** |" in report.floors([(SCENARIO, columns)])[3]


def test_a_table_has_a_cell_for_every_column_whatever_is_missing() -> None:
    lines = report.table(SCENARIO, COLUMNS)
    assert {line.count("|") for line in lines} == {5}
    assert lines[2] == "| MB/s | 300 | 200 | 1.50 |"
    assert lines[4] == "| start, s | 1.00 |  |  |"


def test_the_report_says_which_size_it_was_made_with() -> None:
    text = report.markdown([(SCENARIO, COLUMNS)], QUICK)
    assert "quick size" in text
    assert "| example: MB/s ÷ Kafka | ≥ 1.50 | 1.50 | yes |" in text
