"""SIGTERM and Ctrl-C in a command: when they are raised, and what becomes of the handlers."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.cli.signals import Terminated, held, terminable

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH = [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def held_signals(*numbers: signal.Signals) -> list[str]:
    """What is done in spite of these signals."""
    done = []
    with suppress(KeyboardInterrupt), terminable():
        with held:
            for number in numbers:
                signal.raise_signal(number)
                done.append(number.name)
        done.append("after")
    return done


@pytest.mark.parametrize(("number", "raised"), BOTH)
def test_a_signal_is_raised_where_it_comes(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as found, terminable():
        signal.raise_signal(number)
    assert found.type is raised
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "raised"), BOTH)
def test_a_signal_waits_for_the_end_of_what_is_held(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    assert held_signals(number) == [number.name]
    with pytest.raises(KeyboardInterrupt) as found, terminable(), held:
        signal.raise_signal(number)
    assert found.type is raised


def test_a_second_signal_waits_for_nothing() -> None:
    assert held_signals(signal.SIGINT, signal.SIGTERM, signal.SIGINT) == ["SIGINT"]


def test_the_first_signal_of_the_next_command_is_held_again() -> None:
    assert held_signals(signal.SIGTERM) == ["SIGTERM"]
    assert held_signals(signal.SIGTERM) == ["SIGTERM"]


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    with ignored(signal.SIGINT):
        with terminable():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
