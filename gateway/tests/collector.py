"""What the garbage collector would have to free: for tests that say that nothing large waits for it.

    with nothing_for_the_collector(Connection):
        ...                                         # connections come and go

The collector is off inside the block. At its end it is asked what it would have had to free. That must be
none of the given classes, no view of a buffer and no frame of a function: a frame keeps whatever its
function had.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def nothing_for_the_collector(*classes: type) -> Iterator[None]:
    holders = (FrameType, TracebackType, memoryview, *classes)
    gc.collect()
    gc.freeze()  # what there is now is not looked at again
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = sorted(type(each).__name__ for each in gc.garbage if isinstance(each, holders))
        frames = {each.f_code.co_qualname for each in gc.garbage if isinstance(each, FrameType)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
    assert not found, frames
