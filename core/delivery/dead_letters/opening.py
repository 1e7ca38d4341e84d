"""Opens the two logs so that they agree on what is settled (join.py).

The message log takes the folder's lock. Then the action log is opened, which says up to where it has
followed; then the message log is replayed from there on at the latest, and what it hands over is written
to the action log. When this returns, both are durable, and nothing that is settled in one is open in the
other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kumquat.core.delivery.dead_letters.join import Joiner
from kumquat.core.errors import StorageError
from kumquat.core.logs.actions.log import SEGMENT_BYTES
from kumquat.core.logs.actions.service import ActionService
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.unreadable import not_opened
from kumquat.core.logs.messages.service import MessageService

log = logging.getLogger("kumquat.actions")

T = TypeVar("T")
Join = Callable[[Files, Path], Joiner]


def open_joined(
    open_messages: Callable[[Join], tuple[MessageService, T]],
    now_ms: Callable[[], int] | None = None,
    segment_bytes: int = SEGMENT_BYTES,
) -> tuple[MessageService, T, ActionService, Joiner]:
    """Blocks. `open_messages`: opens the message log, and what else lives on it, with this as its `join`
    (MessageService.open). `now_ms`: the clock of the groups, see ActionService.open. StartError says why
    that fails."""
    opened: list[tuple[ActionService, Joiner]] = []

    def join(files: Files, directory: Path) -> Joiner:
        actions = ActionService.open(directory, files, now_ms, segment_bytes)
        opened.append((actions, Joiner(actions.groups)))
        return opened[-1][1]

    try:
        messages, other = open_messages(join)
    except BaseException:
        for actions, _ in opened:
            actions.abandon()
        raise
    [(actions, joiner)] = opened
    try:
        joiner.catch_up(actions.log, messages.log.synced_end)
    except StorageError as error:
        actions.abandon()
        messages.abandon()
        raise not_opened("the action log", error) from error
    _tell_doubted(messages, actions)
    return messages, other, actions, joiner


def _tell_doubted(messages: MessageService, actions: ActionService) -> None:
    """Where the action log was damaged: whose messages are delivered once more. Only now the names of their
    subjects are known."""
    for (group, subject_id), count in actions.log.doubted.items():
        subject = messages.subjects.by_id.get(subject_id)
        if subject is not None:
            log.error(
                "group %r: what it did in %r is damaged in part. %d messages that it had been handed there "
                "are delivered to it again, acked or not",
                group,
                subject.name,
                count,
            )
