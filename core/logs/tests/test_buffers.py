"""A buffer that is used again while someone looks at it would hand out another's messages."""

from core.logs.buffers import LIMIT, SMALLEST, Buffers

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
