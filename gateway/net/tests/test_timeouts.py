"""A client that is closed though it does its part, or kept though it does not."""

from __future__ import annotations

import pytest

from kumquat.gateway.net.timeouts import (
    IMPATIENT_SECONDS,
    MIN_BYTES_PER_SECOND,
    PRESSED_FRAME_SECONDS,
    UNTAKEN_SECONDS,
    Progress,
)

MAX_RECEIVE = 60.0
LITTLE = 0.001


def fault(
    progress: Progress,
    now: float,
    *,
    sent: int = 0,
    unsent: int = 0,
    partial: int = 0,
    pressed: bool = False,
    frame_pressed: bool = False,
) -> str | None:
    progress.look(now, sent, unsent)
    return progress.fault(
        now,
        unsent=unsent,
        partial=partial,
        max_receive=MAX_RECEIVE,
        pressed=pressed or frame_pressed,
        frame_pressed=frame_pressed,
    )


@pytest.mark.parametrize(
    ("pressed", "seconds"), [(False, UNTAKEN_SECONDS), (True, IMPATIENT_SECONDS)]
)
def test_answers_that_are_not_taken_end_a_connection_and_each_byte_taken_counts(
    pressed: bool, seconds: float
) -> None:
    progress = Progress(0.0)
    assert fault(progress, 0.0, sent=100, unsent=50, pressed=pressed) is None
    assert fault(progress, seconds, sent=100, unsent=50, pressed=pressed) is None
    late = fault(progress, seconds + LITTLE, sent=100, unsent=50, pressed=pressed)
    assert late == f"50 bytes of answers were not taken in {seconds:.0f} s"
    assert fault(progress, 2 * seconds, sent=101, unsent=49, pressed=pressed) is None


def test_a_client_with_nothing_to_take_is_never_late_to_take() -> None:
    progress = Progress(0.0)
    for now in (1.0, 10_000.0):
        assert fault(progress, now, pressed=True) is None


def test_a_frame_must_keep_coming_and_not_too_slowly() -> None:
    progress = Progress(0.0)
    progress.frame_began = 0.0
    silent = fault(progress, MAX_RECEIVE + LITTLE, partial=7)
    assert silent == "only 7 bytes of a frame came in 60 s"
    partial = 10 * MIN_BYTES_PER_SECOND
    progress.last_received = MAX_RECEIVE + 10.0
    assert fault(progress, MAX_RECEIVE + 10.0, partial=partial) is None
    assert fault(progress, MAX_RECEIVE + 10.0 + LITTLE, partial=partial) is not None


def test_a_frame_that_holds_room_which_others_wait_for_must_come_at_once() -> None:
    progress = Progress(0.0)
    progress.frame_began = 0.0
    assert fault(progress, IMPATIENT_SECONDS, partial=9, frame_pressed=True) is None
    assert fault(progress, IMPATIENT_SECONDS + LITTLE, partial=9, frame_pressed=True) is not None
    progress.last_received = PRESSED_FRAME_SECONDS + 1
    assert fault(progress, PRESSED_FRAME_SECONDS + 1, partial=9, frame_pressed=True) is not None
    assert fault(progress, PRESSED_FRAME_SECONDS + 1, partial=4 << 20, frame_pressed=True) is None


def test_a_client_is_not_blamed_while_the_broker_works_for_it() -> None:
    progress = Progress(0.0)
    progress.frame_began, progress.busy = 0.0, True
    assert fault(progress, 10_000.0, partial=7) is None
    assert not progress.is_idle(10_000.0, 1.0, 0)
    assert progress.is_idle(10_000.0, 1.0, 5), "it has answers that it could take"
    progress.busy = False
    assert progress.is_idle(10_000.0, 1.0, 0)
