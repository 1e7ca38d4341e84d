"""A process that may still be sending is never taken for one that has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.pipelines.copies.senders import Sender, has_ended, process, sender_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DEADLINE = 60.0


@pytest.fixture
def living() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        yield child
        child.kill()


def known(pid: int) -> Sender:
    sender = process(pid)
    assert sender is not None
    return sender


def test_living_process_is_taken_for_ended(living: subprocess.Popen[bytes]) -> None:
    sender = known(living.pid)
    assert not has_ended(sender)
    living.kill()
    deadline = time.monotonic() + DEADLINE
    while not has_ended(sender):  # nobody has looked at it yet: it is a zombie
        assert time.monotonic() < deadline
    living.wait()
    assert has_ended(sender)


def test_number_that_came_again_is_taken_for_the_process_before(
    living: subprocess.Popen[bytes],
) -> None:
    sender = known(living.pid)
    assert has_ended(replace(sender, started=sender.started - 1))


def test_process_that_cannot_be_seen_from_here_is_taken_for_ended() -> None:
    """Of another machine, or another boot; of another container; of a cluster."""
    gone = Sender("another", known(os.getpid()).space, 1 << 22, 1)
    assert not has_ended(gone)
    assert not has_ended(replace(known(os.getpid()), pid=(1 << 22) + 1, space="pid:[1]"))
    assert not has_ended(None)


def test_spark_is_taken_for_python(spark: SparkSession) -> None:
    sender = sender_of(spark)
    assert sender is not None
    assert sender.pid != os.getpid()
    assert not has_ended(sender)
