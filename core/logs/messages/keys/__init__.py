"""The index of keys: where the messages with a key are, for subjects with `index.keys`. Derived, and
optional.

    format.py   what lies in a file of keys, byte by byte
    files.py    looking up a key; which files can be used
    build.py    making the file of a sealed segment, in small steps
    service.py  the task that keeps the files up to date
    dump.py     what is in a file, for `kumquat dump`

The active segment has no index: it is scanned.

Producers pay nothing for it, whether it is on or off: no line of the write path knows of it. A segment
whose file is missing, damaged or older than a change of the config is scanned until the task has made
it (again). So an answer is never wrong and never lacks anything; it only takes longer.
"""
