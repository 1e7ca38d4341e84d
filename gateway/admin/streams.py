"""An answer that is made piece by piece, without an end of its own: server-sent events.

    async def events(request):
        return Stream(generator(), "text/event-stream")

exchange.py says when a stream ends. Its generator ends then too, at once: with Cancelled where it waits, or
with GeneratorExit at its `yield` where the client does not take what it has. In the second case Starlette's
own class leaves it to garbage collection.

A client has gone when it closes its connection. One that vanished without doing so is noticed only when it
does not take what is sent, so a stream should send something now and then.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.types import Send


class Stream(StreamingResponse):
    def __init__(self, pieces: AsyncGenerator[bytes | str, None], media_type: str) -> None:
        super().__init__(pieces, media_type=media_type)
        self._pieces = pieces

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().stream_response(send)
