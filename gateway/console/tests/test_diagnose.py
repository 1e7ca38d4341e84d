"""A group stands still and the page names another cause, or none; or it moves and is called stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kumquat.gateway.console.diagnose import HELD_MS, QUIET_MS, diagnose
from kumquat.gateway.console.facts import Failing, MemberFacts, Situation

NOW = 1_700_000_000_000
LONG = 60_000
MEMBER = MemberFacts(
    id="worker-1-abc",
    client_id="worker-1",
    host="10.0.0.7",
    session_ms=45_000,
    heard=NOW - 500,
    fetched=NOW - 300,
    reads_at=40,
    began_at=0,
)
STILL = Situation(
    group="billing",
    subject="orders",
    now=NOW,
    shared=False,
    position=40,
    lag=60,
    behind=60,
    moved=NOW - LONG,
    members=(MEMBER,),
)
SHARING = replace(STILL, shared=True, members=(replace(MEMBER, reads_at=None, began_at=None),))
HOLDS = {"holds": 8, "lowest": 40, "since": NOW - LONG}


def with_member(situation: Situation, **facts: object) -> Situation:
    (member,) = situation.members
    return replace(situation, members=(replace(member, **facts),))  # type: ignore[arg-type]


def names(situation: Situation) -> list[str]:
    return [cause.name for cause in diagnose(situation)]


def only(situation: Situation) -> str:
    (cause,) = diagnose(situation)
    assert cause.advice
    assert cause.subject == "orders"
    return cause.sentence


# --- nothing to explain ----------------------------------------------------------------------------


def test_a_group_that_has_nothing_to_do_is_called_stuck() -> None:
    assert names(replace(STILL, lag=0, behind=0)) == []
    assert names(replace(STILL, lag=0, behind=0, members=())) == []


def test_a_group_that_moves_is_called_stuck() -> None:
    quiet = with_member(STILL, fetched=NOW - LONG, heard=NOW - LONG)
    assert names(replace(quiet, moved=NOW - QUIET_MS + 1)) == []


def test_a_group_whose_first_message_for_long_has_just_come_is_called_stuck() -> None:
    """It commits every 5 s: until then it has read on and not committed."""
    fresh = replace(with_member(STILL, reads_at=41), lag=1, behind=1)
    assert names(fresh) == ["missing commit"]
    assert names(replace(fresh, came=NOW - 3000)) == []


def test_a_group_that_has_just_begun_is_called_stuck() -> None:
    new = replace(STILL, position=None, moved=0)
    assert names(with_member(new, connected=NOW - 2000)) == []
    assert names(with_member(new, connected=NOW - LONG)) == ["missing commit"]


# --- the causes ------------------------------------------------------------------------------------


def test_nobody_is_there_and_it_is_not_said_since_when() -> None:
    text = only(replace(STILL, members=(), empty_since=NOW - LONG))
    assert text.startswith("No consumer is running")
    assert "since 2023-11-14T22:12:20" in text
    assert "60 messages of orders wait" in text


def test_members_that_do_not_read_the_subject_are_not_noticed() -> None:
    assert "Nobody reads orders" in only(replace(STILL, members=(), other_members=2))


@pytest.mark.parametrize("situation", [STILL, with_member(SHARING, **HOLDS)])
def test_a_stopped_consumer_is_not_named(situation: Situation) -> None:
    text = only(with_member(situation, heard=NOW - 30_000, fetched=NOW - 30_000))
    assert text.startswith("Stopped consumer: worker-1 (worker-1-abc)")
    assert "last sent a heartbeat at" in text
    assert "Its session ends at" in text


def test_a_consumer_that_did_not_come_back_after_a_restart_is_said_to_send_heartbeats() -> None:
    text = only(with_member(STILL, heard=None, fetched=None))
    assert "no sign of life since the broker's start" in text


@pytest.mark.parametrize("situation", [STILL, with_member(SHARING, **HOLDS)])
def test_a_paused_member_is_not_named(situation: Situation) -> None:
    text = only(with_member(situation, fetched=NOW - LONG))
    assert text.startswith("Paused member: worker-1 (worker-1-abc) sends heartbeats")
    assert "no messages since" in text
    assert ("holds 8 messages" in text) == situation.shared
    assert "at all" in only(with_member(situation, fetched=None))


def test_a_missing_commit_is_not_named() -> None:
    text = only(with_member(STILL, reads_at=100))
    assert text.startswith("Missing commit: worker-1")
    assert "offset 100" in text
    assert "stays at offset 40" in text
    text = only(with_member(SHARING, **HOLDS))
    assert text.startswith("Missing commit: worker-1")
    assert "holds 8 messages" in text


def test_a_group_that_never_committed_is_not_named() -> None:
    never = with_member(replace(STILL, position=None, moved=0), connected=NOW - LONG)
    assert "has never committed" in only(never)
    assert names(with_member(never, reads_at=7, began_at=7)) == ["stuck"]


def test_a_poison_message_is_not_named() -> None:
    failing = Failing(17, 4, NOW + 8000, count=1, limit=16, reason="no such customer")
    text = only(replace(SHARING, lag=1, behind=0, failing=failing, moved=NOW))
    assert text.startswith("Poison message: message 17 of orders failed 3 times")
    assert "“no such customer”" in text
    assert "next attempt is at 2023-11-14T22:13:28" in text
    assert "after 16 attempts" in text


def test_a_poison_message_that_waits_for_a_member_or_is_with_one_is_said_to_come_later() -> None:
    late = replace(SHARING, lag=1, failing=Failing(17, 2, NOW - 5000), moved=NOW)
    assert "due since" in only(late)
    again = replace(late, failing=Failing(17, 3, None, held_by="worker-2", count=2))
    text = only(again)
    assert "worker-2 has it" in text
    assert "failed 2 times (and 1 more has failed)" in text


def test_a_retry_that_no_member_can_take_is_told_with_what_to_do() -> None:
    stranded = Failing(17, 2, NOW - 5000, stranded=True)
    (cause,) = diagnose(replace(STILL, lag=1, behind=0, failing=stranded, moved=NOW))
    assert "message 17 of orders failed once; its next attempt is due since" in cause.sentence
    assert "no member's client is known to share" in cause.sentence
    assert "consume.mode=shared" in cause.advice


def test_a_failed_message_is_not_blamed_for_a_group_that_reads_in_order() -> None:
    failing = Failing(17, 2, NOW + 3_600_000)
    quiet = with_member(replace(STILL, failing=failing), fetched=NOW - LONG)
    assert names(quiet) == ["paused member", "poison message"]
    stuck = with_member(replace(STILL, failing=failing), reads_at=40, began_at=40)
    assert names(stuck) == ["stuck", "poison message"]


def test_a_message_that_comes_for_the_first_time_is_called_poison() -> None:
    assert names(replace(SHARING, failing=Failing(17, 1, None), moved=NOW)) == []


def test_dead_letters_that_cannot_be_written_are_not_named() -> None:
    text = only(replace(SHARING, lag=0, doomed=3, doomed_why="the disk is full"))
    assert "3 messages of orders cannot become dead letters: the disk is full" in text


def test_a_member_that_sits_on_messages_while_others_work_is_not_named() -> None:
    lazy = replace(MEMBER, id="lazy", holds=5, since=NOW - HELD_MS - 1, fetched=NOW - LONG)
    busy = replace(MEMBER, id="busy", holds=5, since=NOW - 1000)
    moving = replace(SHARING, moved=NOW - 100, members=(lazy, busy))
    (cause,) = diagnose(moving)
    assert (cause.name, "lazy" in cause.sentence, "busy" in cause.sentence) == (
        "paused member",
        True,
        False,
    )


def test_one_cause_hides_another() -> None:
    failing = Failing(40, 3, NOW + 1000)
    both = with_member(replace(SHARING, failing=failing), fetched=NOW - LONG, **HOLDS)
    assert names(both) == ["poison message", "paused member"]


def test_a_hundred_members_make_a_sentence_without_end() -> None:
    many = tuple(replace(MEMBER, id=f"m-{n}", fetched=NOW - LONG) for n in range(100))
    text = only(replace(STILL, members=many))
    assert "and 97 more" in text
    assert len(text) < 300
