"""A Produce that is like the one before it, staged and answered without decoding it again.

A producer that pipelines small batches to one topic sends the same bytes again and again around each
batch: only the correlation id, the batch and its length differ. Decoding all of it, building the answer
and encoding that is most of what such a request costs. A `Template` holds the bytes before and after the
batch, and the answer with gaps for what differs. A frame that fits is taken apart by one `unpack`, and
its answer is one `pack`. When a template is made is decided in repeats.py.

What makes this safe:
- A template is made of a request that was decoded, and only if encoding it again gives the same bytes. So a
  frame with the same bytes around its batch, and a length that fits, decodes to the same request with
  another batch.
- The answer is what the encoder gives for three marker values, which are then found and cut out of it.
- Whatever does not fit (another frame, a deleted topic) and whatever is refused is left to the handler:
  `stage` gives None, and nothing has happened.
- A batch that has to wait goes the handler's way too, but has been looked at already. So it is decoded, and
  the connection is given what it has to await, with the look in it (produce_opening.py).
- test_produce_template.py compares it with the handler, byte for byte, in every version.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from kumquat.core.errors import KumquatError
from kumquat.core.records.look import PLAIN
from kumquat.gateway.handlers.common.produce_opening import ALL, ZSTD_SINCE, open_rest
from kumquat.gateway.net.repeats import ToOpen
from kumquat.gateway.topics.table import INTERNAL
from kumquat.gateway.wire import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kumquat.gateway.wire.varint import uvarint

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.records.look import Look
    from kumquat.gateway.net.answers import Buffer, QueuedAnswer
    from kumquat.gateway.net.dispatch import Route, Session

HEAD_AT = 8
"""Behind API key, version and correlation id."""
LAYOUTS_KEPT = 1024

Layout = tuple[bytes, int, int]
"""What stands before the batch (its length), where the batch begins and where it ends."""

_MARKS = (0x1111111122222222, 0x3333333344444444, 0x5555555566666666)
_pack_length = Struct(">i").pack
_pack_numbers = Struct(">qqq").pack


def make_template(
    session: Session, route: Route, frame: memoryview, start: int, request: ProduceRequest
) -> Template | None:
    """A template of a request, whose body begins at `start`; None if it is not of the plain kind."""
    topics = request.topic_data
    if route.version < ZSTD_SINCE or request.acks not in (ALL, 1) or len(topics) != 1:
        return None
    if request.transactional_id is not None or len(topics[0].partition_data) != 1:
        return None
    log = session.broker.log
    name, topic_id = topics[0].name, topics[0].topic_id
    subject = log.subjects.by_name.get(name) or log.subjects.by_topic_id.get(topic_id)
    (partition,) = topics[0].partition_data
    if subject is None or partition.index or not partition.records or subject.name in INTERNAL:
        return None
    buffers = ProduceRequest.encode(request, route.version)
    if b"".join(buffers) != frame[start:].tobytes():
        return None
    return Template(session, route, subject, request, frame, start, start + len(buffers[0]))


class Template:
    """Fits the frames that are like one given frame; takes the place of the route in their slots."""

    __slots__ = (
        "_all",
        "_append",
        "_before",
        "_behind",
        "_flexible",
        "_head",
        "_head_size",
        "_layouts",
        "_limit",
        "_pack",
        "_route",
        "_session",
        "_size",
        "_start",
        "_subject",
        "_tail",
        "_tail_size",
        "_unpack",
        "appends",
    )

    def __init__(
        self,
        session: Session,
        route: Route,
        subject: Subject,
        request: ProduceRequest,
        frame: memoryview,
        start: int,
        batch_at: int,
    ) -> None:
        (partition,) = request.topic_data[0].partition_data
        assert partition.records is not None
        self.appends = True
        self._session = session
        self._route = route
        log = session.broker.log
        self._append = log.log.writer.append_nowait  # bound once: by way of `log` it costs 0.2 µs
        self._limit = log.inflation.limit
        self._subject = subject
        self._all = request.acks == ALL
        self._flexible = route.version >= ProduceRequest.flexible_from
        self._start = start
        self._tail = frame[batch_at + len(partition.records) :].tobytes()
        self._tail_size = len(self._tail)
        self._head_size = batch_at - len(self._length(len(partition.records)))
        self._unpack = Struct(f">4si{self._head_size - HEAD_AT}s").unpack_from
        api, _, head = self._unpack(frame)
        self._head = (api, head)
        self._layouts: dict[int, Layout] = {}
        self._cut_answer(request)

    def _length(self, size: int) -> bytes:
        """How the length of a batch is written before it."""
        return uvarint(size + 1) if self._flexible else _pack_length(size)

    def _layout(self, size: int) -> Layout:
        """Where in a frame of this size the batch lies, and what stands before it."""
        room = size - self._head_size - self._tail_size
        for width in range(1, 6):
            length = self._length(max(room - width, 0))
            if len(length) == width:
                break
        if len(self._layouts) >= LAYOUTS_KEPT:
            self._layouts.clear()
        layout = length, self._head_size + width, size - self._tail_size
        self._layouts[size] = layout
        return layout

    def _cut_answer(self, request: ProduceRequest) -> None:
        (topic,) = request.topic_data
        partition = PartitionProduceResponse(0, 0, *_MARKS)
        sample = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [partition])])
        whole = b"".join(self._route.encode(0, sample))
        self._size = len(whole) - 4
        self._before, mark, self._behind = whole[8:].partition(_pack_numbers(*_MARKS))
        assert mark
        self._pack = Struct(f">ii{len(self._before)}sqqq{len(self._behind)}s").pack

    def stage(self, frame: memoryview) -> QueuedAnswer | ToOpen | None:
        """Stage the batch of a frame and give its answer, or what is to be awaited for it; None: the frame
        is for the handler."""
        size, subject, head_size = len(frame), self._subject, self._head_size
        if size <= head_size or subject.deleted:
            return None
        api, correlation_id, head = self._unpack(frame)
        length, start, end = self._layouts.get(size) or self._layout(size)
        if (
            (api, head) != self._head
            or frame[head_size:start].tobytes() != length
            or frame[end:].tobytes() != self._tail
        ):
            return None
        batch = frame[start:end]
        try:
            look = subject.look(batch, self._limit)
            if look.verdict is not PLAIN:
                return self._to_open(frame, correlation_id, look)
            base, append_time, position = self._append(subject, batch, look.head)
        except KumquatError:
            return None
        answer = self._pack(
            self._size,
            correlation_id,
            self._before,
            base,
            append_time,
            subject.earliest,
            self._behind,
        )
        return position if self._all else 0, self, correlation_id, frame, answer

    def _to_open(self, frame: memoryview, correlation_id: int, look: Look) -> ToOpen:
        request, _ = self._route.decode(frame, self._start)
        opening = partial(open_rest, self._session, request, [], 0, look)
        return ToOpen(self._route, correlation_id, request, opening)

    def refuse(self, frame: memoryview, code: int, message: str) -> Any:
        """As Route.refuse; in a queued answer the frame stands for the request."""
        request, _ = self._route.decode(frame, self._start)
        return self._route.refuse(request, code, message)

    def encode(self, correlation_id: int, response: Any) -> list[Buffer]:
        return self._route.encode(correlation_id, response)
