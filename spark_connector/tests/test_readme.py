"""What the README shows of Spark is run as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.cli import PIPELINES, parser

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
SPARK = README[README.index("\n## Spark\n") :]
SHOWN = "127.0.0.1:9092"


@pytest.mark.short
def test_lines_to_paste_that_do_not_work(
    spark: SparkSession,
    kumquat: TestBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    block = re.search(r"```python\n(.*?)```", SPARK, re.DOTALL)
    assert block is not None
    lines = [line for line in block[1].splitlines() if line]
    assert len(lines) <= 10
    assert block[1].count(SHOWN) == 1
    monkeypatch.setattr("kumquat.spark.spark_session", lambda: spark)
    exec(block[1].replace(SHOWN, kumquat.bootstrap), {})
    shown = re.findall(r"\|\s*customer-([0-6])\|\s*([0-9]+)\|", capsys.readouterr().out)
    expected = [(str(n), str(sum(range(n, 1000, 7)))) for n in range(7)]
    assert sorted(shown) == expected


def test_commands_that_do_not_parse() -> None:
    lines = re.findall(r"^    \.venv/bin/kumquat-spark (.*)$", SPARK, re.MULTILINE)
    parsed = [parser().parse_args(shlex.split(line)) for line in lines]
    assert {args.command for args in parsed} == set(PIPELINES)
