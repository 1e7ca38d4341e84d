"""The subjects that dead letters go to (core/delivery/dead_letters): made when the first letter is written.

A letter is a little larger than the message it was, so its subject takes larger ones. Its other configs
are the broker's defaults. A letter keeps the timestamp of its message, but its batch counts as new:
`retention.ms` runs from when it died.

Two names that differ only in '.' and '_' collide. A letters' subject whose name collides gets one with a
hash: dead letters must not wait for somebody to rename a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.dead_letters.names import marked
from kumquat.core.delivery.dead_letters.service import MORE_BYTES, NotMade
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.values import INT_MAX

if TYPE_CHECKING:
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.topics.subjects import SubjectKeeper


class LettersMaker:
    def __init__(self, keeper: SubjectKeeper, log: MessageService) -> None:
        self._keeper = keeper
        self._subjects = log.subjects

    async def make(self, name: str, origin: Subject) -> Subject:
        """The subject of that name, or what it is called instead; made if there is none. NotMade."""
        try:
            try:
                return await self._made(name, origin)
            except Refused as refused:
                if refused.error_code != ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise
                return await self._made(marked(name, name), origin)
        except ANSWERABLE as error:
            raise NotMade(f"the subject {name} cannot be made: {error}") from error

    async def _made(self, name: str, origin: Subject) -> Subject:
        found = self._subjects.by_name.get(name)
        if found is not None:
            return found
        largest = max(origin.config.max_message_bytes, self._subjects.defaults.max_message_bytes)
        configs = {"max.message.bytes": str(min(INT_MAX, largest + MORE_BYTES))}
        try:
            return await self._keeper.create(name, configs)
        except ANSWERABLE:
            found = self._subjects.by_name.get(name)
            if found is not None:  # made by a client meanwhile, or its configs were not stored
                return found
            raise
