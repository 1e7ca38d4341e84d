"""A group stands still, and the console does not say why.

Four situations, staged with real clients. In each an operator opens the first page, follows the group that
needs attention, and must find the cause named there, with the member or message to look at.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from kafka import TopicPartition
from playwright.sync_api import expect

from compat_tests.console.chromium import tab
from compat_tests.console.stage import polling
from compat_tests.groups.stories import configure
from compat_tests.support import eventually
from kumquat.consumer import retry

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from compat_tests.console.stage import Stage
    from compat_tests.members.fixture import Members

pytestmark = pytest.mark.long  # a consumer counts as quiet after ten seconds
COUNT = 50
SESSION_MS = 40_000
MODES = ["exclusive", "shared"]


@pytest.fixture(params=MODES)
def names(request: pytest.FixtureRequest, stage: Stage) -> tuple[str, str]:
    """A subject with messages, and a group that reads it in this mode."""
    subject, group = stage.new(), f"{request.param}-{stage.new()}"
    stage.create([subject])
    stage.produce(subject, [(None, b"message %d" % n) for n in range(COUNT)])
    configure(stage.bootstrap, group, **{"consume.mode": request.param})
    return subject, group


def finds(page: Page, group: str, cause: str, *texts: str) -> None:
    """From the first page on, with clicks alone."""
    page.goto("/")
    page.locator("#troubles").get_by_role("link", name=group, exact=True).click()
    found = page.locator(f"[data-cause='{cause}']")
    expect(found).to_be_visible()
    for text in texts:
        expect(found).to_contain_text(text)
    expect(found.locator(".advice")).not_to_be_empty()


def test_a_stopped_consumer_is_not_named(
    chromium: Browser, stage: Stage, workers: Members, names: tuple[str, str]
) -> None:
    subject, group = names
    member = workers(
        "kafka_python-range",
        group,
        subject,
        alone=True,
        max_poll_records=10,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1000,
    )
    member.take(10)
    member.do("commit")
    member.freeze()
    with tab(chromium, stage.admin) as page:
        finds(page, group, "stopped consumer", member.name, "last sent a heartbeat", "session ends")


def test_a_group_without_consumers_is_not_named(chromium: Browser, stage: Stage) -> None:
    subject, group = stage.new(), stage.new()
    stage.create([subject])
    stage.produce(subject, [(None, b"v") for _ in range(COUNT)])
    stage.consume(subject, group, 10)
    with tab(chromium, stage.admin) as page:
        finds(page, group, "no consumer", "no members since", "40 messages")


def test_a_paused_member_is_not_named(
    chromium: Browser, stage: Stage, names: tuple[str, str]
) -> None:
    subject, group = names
    with closing(stage.consumer(subject, group, max_poll_records=10)) as consumer:
        eventually(lambda: bool(consumer.poll(500)), "a first message")
        consumer.commit()
        consumer.pause(TopicPartition(subject, 0))
        with polling(lambda: consumer.poll(200)), tab(chromium, stage.admin) as page:
            finds(
                page, group, "paused member", f"{group}-1", "sends heartbeats", "no messages since"
            )


def test_a_missing_commit_is_not_named(
    chromium: Browser, stage: Stage, names: tuple[str, str]
) -> None:
    subject, group = names
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": group,
            "client.id": "forgetful",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([subject])
    got: list[Any] = []

    def poll() -> None:
        message = consumer.poll(0.2)
        if message is not None:
            got.append(message)

    with closing(consumer), polling(poll):
        eventually(lambda: len(got) >= COUNT, "all messages")
        with tab(chromium, stage.admin) as page:
            finds(page, group, "missing commit", "forgetful", "commit")


def test_a_poison_message_is_not_named(chromium: Browser, stage: Stage) -> None:
    subject, group = stage.new(), stage.new()
    stage.create([subject])
    stage.produce(subject, [(None, b"message %d" % n) for n in range(COUNT)])
    configure(stage.bootstrap, group, **{"retry.backoff.ms": "1000"})
    producer = stage.producer(enable_idempotence=False)
    consumer = stage.consumer(subject, group)
    failed = []

    def poll() -> None:
        for records in consumer.poll(200).values():
            for record in records:
                if record.value == b"message 17":
                    failed.append(record)
                    retry(producer, group, record, reason="customer 17 is unknown")
            consumer.commit()

    with closing(producer), closing(consumer), polling(poll):
        eventually(lambda: len(failed) >= 3, "three attempts")
        with tab(chromium, stage.admin) as page:
            finds(
                page,
                group,
                "poison message",
                f"message 17 of {subject} failed",
                "customer 17 is unknown",
                "attempt",
            )
            page.get_by_role("link", name=f"message 17 of {subject}").click()
            expect(page.locator("pre")).to_have_text("message 17")


def test_a_group_that_works_is_called_stuck(
    chromium: Browser, stage: Stage, names: tuple[str, str]
) -> None:
    subject, group = names
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 500}
    consumer = stage.consumer(subject, group, **settings)
    got: list[Any] = []

    def poll() -> None:
        for records in consumer.poll(200).values():
            got.extend(records)

    with closing(consumer), polling(poll):
        eventually(lambda: len(got) >= COUNT, "all messages")  # before, there may be no such group
        with tab(chromium, stage.admin) as page:
            page.goto(f"/console/group?name={group}")
            expect(page.locator("#causes")).to_contain_text("It keeps up")
            expect(page.locator("#members")).to_contain_text(f"{group}-1")
            assert page.locator("[data-cause]").count() == 0
