"""A buffer that is used again while someone looks at it would hand out another's messages."""

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.logs.disk.buffers import LIMIT, SMALLEST, Buffers, is_free

SIZE = 4 * SMALLEST


def test_a_buffer_in_use_is_not_given_again() -> None:
    buffers = Buffers()
    first, second = buffers.take(SIZE), buffers.take(SIZE)
    assert first.obj is not second.obj


def test_a_view_of_a_part_keeps_the_whole() -> None:
    buffers = Buffers()
    first = buffers.take(SIZE)
    part = first[10:20]
    first.release()
    assert buffers.take(SIZE).obj is not part.obj


def test_a_buffer_that_nobody_looks_at_is_used_again() -> None:
    buffers = Buffers()
    kept = id(buffers.take(SIZE).obj)
    assert id(buffers.take(SIZE).obj) == kept
    assert id(buffers.take(SIZE - 100).obj) == kept


def test_a_small_read_does_not_hold_a_large_buffer() -> None:
    buffers = Buffers()
    large = id(buffers.take(16 * SIZE).obj)
    assert id(buffers.take(SIZE).obj) != large


def test_the_pool_keeps_no_more_than_its_limit() -> None:
    buffers = Buffers(limit=3 * SIZE)
    taken = [buffers.take(SIZE) for _ in range(10)]
    assert len({id(view.obj) for view in taken}) == 10
    assert sum(map(len, buffers._pool)) <= 3 * SIZE
    assert len(Buffers().take(LIMIT + 1)) == LIMIT + 1


def test_a_buffer_that_is_only_referred_to_is_free_and_one_with_a_view_is_not() -> None:
    """References come and go without being counted (borrowed ones, from CPython 3.14 on); views do not."""
    buffer = bytearray(SIZE)
    referred = [buffer] * 10
    assert is_free(buffer)
    part = memoryview(buffer)[5:6]
    del referred
    assert not is_free(buffer)
    part.release()
    assert is_free(buffer)


def test_looking_whether_a_buffer_is_free_moves_and_changes_nothing() -> None:
    buffer = bytearray(b"x" * SIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    for _ in range(100):
        assert is_free(buffer)
    assert ctypes.addressof(ctypes.c_char.from_buffer(buffer)) == address
    assert buffer == b"x" * SIZE


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(1, 20).map(lambda n: n * SMALLEST), st.just(0)), max_size=40))
def test_no_two_that_are_in_use_ever_share_memory(steps: list[int]) -> None:
    """A number takes so many bytes, zero lets the oldest go. Each taker finds what it wrote."""
    buffers = Buffers(limit=64 * SMALLEST)
    held: list[tuple[int, memoryview]] = []
    for number, size in enumerate(steps):
        if size:
            view = buffers.take(size)[3:-3]
            view[:] = bytes([number]) * len(view)
            held.append((number, view))
        elif held:
            held.pop(0)
        for owner, view in held:
            assert view[0] == view[-1] == owner
