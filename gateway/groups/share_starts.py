"""Where a share group begins on a subject that it has not read: `share.auto.offset.reset` of the group.

    latest          behind the last message
    earliest        at the first message that there is
    by_duration:P   at the first message that is not older than that (an ISO 8601 duration: PT1H, P7D)

The last one needs a search in the log, in a thread, before the decision: `look` makes it for those subjects
of a subscription that the group does not have yet, and the decision runs inside `using`. A subject that is
created later has no message older than the subscription, so there the first message will do.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kumquat.core.delivery.state import Groups
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.meta.registry import Registry

LATEST = "latest"


class ShareStarts:
    def __init__(
        self, log: MessageService, groups: Groups, registry: Registry, now_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._groups = groups
        self._registry = registry
        self._now_ms = now_ms
        self._found: Mapping[int, int] = {}

    async def look(self, group: str, topics: Iterable[str]) -> dict[int, int]:
        """Subject id → where it begins; only where that has to be searched for."""
        ago = self._registry.group_config(group).share_reset_ms
        if ago is None:
            return {}
        since = max(0, self._now_ms() - ago)
        found = {}
        for topic in dict.fromkeys(topics):
            subject, known = self._log.subjects.by_name.get(topic), self._groups.by_name.get(group)
            progress = None if subject is None or known is None else known.progress.get(subject.id)
            if subject is None or (progress is not None and progress.shared):
                continue
            first = await self._log.offset_for_timestamp(subject, since)
            found[subject.id] = subject.readable_end if first is None else first[1]
        return found

    @contextmanager
    def using(self, found: Mapping[int, int]) -> Iterator[None]:
        """What `look` has found counts in here."""
        self._found = found
        try:
            yield
        finally:
            self._found = {}

    def of(self, group: str, subject: Subject) -> int:
        if subject.id in self._found:
            return self._found[subject.id]
        latest = self._registry.group_config(group).share_auto_offset_reset == LATEST
        return subject.readable_end if latest else subject.earliest
