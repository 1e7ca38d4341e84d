"""What is in a segment of the action log: a line for each frame and each action in it.

Part of `kumquat dump` (dump.py), and like it for a file alone: damage is shown where it is, and the frames
behind it are found by their magic.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from kumquat.core.logs.actions.format import (
    KIND_NAMES,
    FrameHeader,
    parse_arrays,
    payload_damage,
)
from kumquat.core.logs.actions.scan import ActionFrames
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.disk.files import RealFiles


def dump_actions(path: Path, out: TextIO) -> int:
    """Write what is in the segment to `out`; 0 when all of it is whole, else 1."""
    segment = ActionSegment(path.parent, int(path.stem))
    count = bad = 0
    with ActionFrames(RealFiles(), segment, readonly=True) as frames:
        position = segment.base
        while position < frames.end and not frames.is_blank_from(position):
            header = frames.header_at(position)
            if isinstance(header, FrameHeader):
                count += 1
                bad += _dump_frame(header, frames.payload_of(header), out)
                position = header.end
                continue
            bad += 1
            print(f"{position:>14} BAD (byte {position - segment.base}): {header}", file=out)
            found = frames.next_header(position + 1)
            position = frames.end if found is None else found.position
        room = frames.end - position
    print(f"{path}: {count} frames, {bad} bad; {room} bytes of reserved room follow", file=out)
    return 1 if bad else 0


def _dump_frame(header: FrameHeader, payload: bytes, out: TextIO) -> bool:
    """Whether it is bad."""
    time = datetime.fromtimestamp(header.time / 1000, UTC).isoformat(timespec="milliseconds")
    kind = KIND_NAMES.get(header.kind, f"kind {header.kind}")
    line = f"{header.position:>14} {time} {kind} length={header.length} synced={header.synced_end}"
    damage = payload_damage(header, payload)
    if damage is not None:
        print(f"{line} BAD: {damage}", file=out)
        return True
    print(line, file=out)
    for name, *rest in parse_arrays(payload):
        fields = " ".join(json.dumps(field, separators=(",", ":")) for field in rest)
        print(f"{'':>14}   {name} {fields}".rstrip(), file=out)
    return False
