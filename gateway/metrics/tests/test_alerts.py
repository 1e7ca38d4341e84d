"""An alert that can never fire, or that fires on a broker that is well: with made-up series, in promtool.

FIRES says, for each alert, which series make it fire, and after how many minutes. Values are written as
promtool wants them: `1+2x30` begins with 1 and grows by 2 in each of 30 further minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from kumquat.gateway.metrics.tests.expressions import ALERTS, alerts
from kumquat.gateway.metrics.tests.prometheus import needs_prometheus, promtool

if TYPE_CHECKING:
    from pathlib import Path

Case = tuple[int, dict[str, str]]
"""Minutes, and series with their values."""

_PAIR = 'consumergroup="billing",topic="orders",partition="0"'
FIRES: dict[str, Case] = {
    "KumquatDown": (3, {'up{job="kumquat"}': "0x5"}),
    "KumquatLogFenced": (2, {'kumquat_log_fenced{log="messages"}': "0 1 1 1"}),
    "KumquatDiskNearlyFull": (3, {'kumquat_health{check="disk"}': "0x5"}),
    "KumquatDiskFullSoon": (480, {"kumquat_disk_free_bytes": "1000000-1000x480"}),
    "KumquatSyncSlow": (
        20,
        {
            'kumquat_log_sync_seconds_bucket{log="messages",le="0.5"}': "0x20",
            'kumquat_log_sync_seconds_bucket{log="messages",le="1.0"}': "0+10x20",
            'kumquat_log_sync_seconds_bucket{log="messages",le="+Inf"}': "0+10x20",
        },
    ),
    "KumquatUnsynced": (7, {'kumquat_log_unsynced_bytes{log="messages"}': "16000000x10"}),
    "KumquatCorruptReads": (5, {"kumquat_reads_corrupt_total": "0 0 0 1 1 1"}),
    "KumquatFailedReads": (5, {"kumquat_reads_failed_total": "0 0 0 1 1 1"}),
    "KumquatLoopLag": (
        20,
        {
            'kumquat_loop_lag_seconds_bucket{le="0.2"}': "0x20",
            'kumquat_loop_lag_seconds_bucket{le="0.5"}': "0+100x20",
            'kumquat_loop_lag_seconds_bucket{le="+Inf"}': "0+100x20",
        },
    ),
    "KumquatConnectionsNearLimit": (
        7,
        {"kumquat_connections": "95x10", "kumquat_connections_limit": "100x10"},
    ),
    "KumquatConnectionsRefused": (5, {"kumquat_connections_refused_total": "0 0 3 3 3 3"}),
    "KumquatDescriptorsNearLimit": (
        7,
        {
            'process_open_fds{job="kumquat"}': "900x10",
            'process_max_fds{job="kumquat"}': "1000x10",
            'kumquat_build_info{job="kumquat",version="1"}': "1x10",
        },
    ),
    "KumquatMemoryWaits": (7, {'kumquat_memory_waiting{room="answers"}': "2x10"}),
    "KumquatBatchesRefused": (
        15,
        {"kafka_server_brokertopicmetrics_failedproducerequests_total": "0+5x20"},
    ),
    "KumquatGroupStands": (
        30,
        {
            f"kafka_consumergroup_lag{{{_PAIR}}}": "5+1x40",
            f"kafka_consumergroup_current_offset{{{_PAIR}}}": "7x40",
        },
    ),
    "KumquatGroupLagGrows": (70, {f"kafka_consumergroup_lag{{{_PAIR}}}": "20000+100x80"}),
    "KumquatGroupWithoutMembers": (
        20,
        {
            f"kafka_consumergroup_lag{{{_PAIR}}}": "5x20",
            'kafka_consumergroup_members{consumergroup="billing"}': "0x20",
        },
    ),
    "KumquatRetriesPileUp": (
        20,
        {'kumquat_group_retries_waiting{consumergroup="billing",topic="orders"}': "2000x20"},
    ),
    "KumquatMessagesExpired": (5, {"kumquat_messages_expired_total": "0 0 9 9 9 9"}),
    "KumquatDeadLetters": (5, {'kumquat_dead_letters_total{reason="rejected"}': "0 0 1 1 1 1"}),
    "KumquatDeadLettersFailing": (7, {"kumquat_dead_letters_failing": "1x10"}),
    "KumquatDelaysFailing": (3, {"kumquat_delay_failing": "1x5"}),
    "KumquatDelaysLate": (
        15,
        {
            'kumquat_delay_lateness_seconds_bucket{le="5.0"}': "0x20",
            'kumquat_delay_lateness_seconds_bucket{le="10.0"}': "0+9x20",
            'kumquat_delay_lateness_seconds_bucket{le="+Inf"}': "0+9x20",
        },
    ),
    "KumquatDelaysDamaged": (5, {"kumquat_delay_damaged_total": "0 0 1 1 1 1"}),
}
WELL = {
    'up{job="kumquat"}': "1x90",
    'kumquat_log_fenced{log="messages"}': "0x90",
    'kumquat_health{check="disk"}': "1x90",
    "kumquat_disk_free_bytes": "1000000000000x90",
    'kumquat_log_sync_seconds_bucket{log="messages",le="0.5"}': "0+600x90",
    'kumquat_log_sync_seconds_bucket{log="messages",le="+Inf"}': "0+600x90",
    'kumquat_log_unsynced_bytes{log="messages"}': "4096x90",
    "kumquat_reads_corrupt_total": "3x90",
    'kumquat_loop_lag_seconds_bucket{le="0.2"}': "0+3000x90",
    'kumquat_loop_lag_seconds_bucket{le="+Inf"}': "0+3000x90",
    "kumquat_connections": "95x90",
    "kumquat_connections_limit": "10000x90",
    "kumquat_connections_refused_total": "9x90",
    f"kafka_consumergroup_lag{{{_PAIR}}}": "50x90",
    f"kafka_consumergroup_current_offset{{{_PAIR}}}": "0+1000x90",
    'kafka_consumergroup_members{consumergroup="billing"}': "2x90",
    'kumquat_dead_letters_total{reason="rejected"}': "12x90",
    "kumquat_dead_letters_failing": "0x90",
    "kumquat_delay_failing": "0x90",
}


def run(folder: Path, cases: dict[str, tuple[Case, list[str]]]) -> None:
    """Each case, and the alerts that fire at its end."""
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [
                {"series": _with_instance(series), "values": values}
                for series, values in given.items()
            ],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{minutes}m",
                    "exp_samples": [
                        {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing
                    ],
                }
            ],
        }
        for name, ((minutes, given), firing) in cases.items()
    ]
    file = folder / "alerts_test.yml"
    whole = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(whole))
    assert "SUCCESS" in promtool("test", "rules", str(file))


def _with_instance(series: str) -> str:
    name, brace, labels = series.partition("{")
    return f'{name}{{instance="a",{labels}' if brace else f'{name}{{instance="a"}}'


@needs_prometheus
def test_an_alert_never_fires(tmp_path: Path) -> None:
    run(tmp_path, {name: (case, [name]) for name, case in FIRES.items()})


@needs_prometheus
def test_an_alert_fires_on_a_broker_that_is_well(tmp_path: Path) -> None:
    run(tmp_path, {"well": ((90, WELL), [])})


@needs_prometheus
def test_the_check_itself_takes_anything(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="FAILED"):
        run(tmp_path, {"well": ((90, WELL), ["KumquatDown"])})


def test_an_alert_is_not_tried() -> None:
    assert FIRES.keys() == alerts().keys()
