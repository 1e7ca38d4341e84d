"""The two logs of a broker, each a folder of segments.

    disk       what both stand on: files, commit (how bytes become durable), reading what may be damaged
    flushing   the Trio side of commit: rounds in a thread, and waiting for them
    messages   the message log, the only copy of every message; its index, recovery and retention
    actions    the action log: what groups, members and consumers did
    dump.py    both logs, readable, for `kumquat dump`

`disk/files.py` is the only way to the disk. `format.py` of each log describes the bytes that lie there.
"""
