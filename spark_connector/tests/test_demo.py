"""The demo, made small: every step is shown, and the page is where it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from kumquat.spark import demo

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_demo_that_does_not_come_to_its_end(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "PRODUCE_SECONDS", 1)
    monkeypatch.setattr(demo, "REMINDERS_SENT", 20)
    monkeypatch.setattr(demo, "DELAYS_MS", (50, 500))
    monkeypatch.setattr(demo, "spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    assert demo.main(tmp_path) == 0
    steps = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line]
    shown = {step[0]: step[-1] for step in steps}
    wanted = ("broker", "produce", "delay", "group", "archive", "reconcile", "report", "page")
    assert [step for step in wanted if step not in shown] == []
    page = Path(urlparse(shown["page"].split()[-1]).path)
    assert page.is_relative_to(tmp_path)
    assert "reminders" in page.read_text()
