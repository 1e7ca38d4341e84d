"""Deciding what is delivered must change nothing: what could not be written is decided once more."""

from kumquat.core.logs.messages.format import HEADER_SIZE, PARKED
from kumquat.core.logs.messages.parked import NO_ORIGIN, ORIGIN_SIZE, pack_origin, pack_parked
from kumquat.core.logs.messages.subject import Subject, SubjectConfig
from kumquat.core.wheel.schedule.delivery_queue import DeliveryQueue
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.tests.delays import START, state_of

BODY = b"\x01\x01\x04"
SUBJECTS = {
    number: Subject(number, bytes(16), f"s{number}", SubjectConfig(1 << 20, -1, -1))
    for number in (1, 2)
}


def queue_of(dues: list[tuple[int, int]]) -> tuple[Schedule, DeliveryQueue]:
    """A queue with a message for each (subject, due), taken from the wheel and read."""
    schedule = Schedule(0, (-1, -1), {}, {}, set())
    schedule.end_replay()
    schedule.begin_load(START + 3_600_000, 0)
    schedule.finish_load()
    position, records = 0, {}
    for subject_id, due in dues:
        record = pack_parked(due, START, b"", BODY)
        schedule.apply(PARKED, subject_id, position, pack_origin(NO_ORIGIN) + record)
        records[position + HEADER_SIZE + ORIGIN_SIZE] = record
        position += 1_000
    queue = DeliveryQueue(schedule)
    until = queue.take_until(START + 1_000)
    assert until is not None
    while queue.take(until):
        pass
    wanted = queue.to_read()
    queue.records_read(wanted, [records[entry.schedule_id] for entry in wanted], SUBJECTS, 0)
    return schedule, queue


def test_a_delivery_that_is_not_written_is_decided_again_in_the_same_way() -> None:
    schedule, queue = queue_of([(1, START + 5), (2, START + 3), (1, START + 3), (3, START + 4)])
    before = state_of(schedule), state_of(queue)
    delivery = queue.decide(START + 10, SUBJECTS)
    assert delivery is not None
    assert (state_of(schedule), state_of(queue)) == before
    assert queue.decide(START + 10, SUBJECTS) == delivery
    assert [entry.due - START for entry in delivery.entries] == [3, 3, 4, 5]
    assert [append.subject.id for append in delivery.appends] == [2, 1], "3 is deleted"


def test_nothing_is_delivered_a_millisecond_early() -> None:
    _, queue = queue_of([(1, START + 5), (1, START + 6)])
    assert queue.decide(START + 4, SUBJECTS) is None
    delivery = queue.decide(START + 5, SUBJECTS)
    assert delivery is not None
    assert [entry.due - START for entry in delivery.entries] == [5]


def test_what_arrives_while_a_delivery_fails_and_is_due_before_it_is_not_passed() -> None:
    """`delivered_until` would pass it, and a start would take it as delivered."""
    schedule, queue = queue_of([(1, START + 5)])
    payload = pack_origin(NO_ORIGIN) + pack_parked(START + 4, START, b"", BODY)
    schedule.apply(PARKED, 1, 50_000, payload)
    assert queue.decide(START + 10, SUBJECTS) is None
