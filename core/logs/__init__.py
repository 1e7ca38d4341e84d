"""The logs: the message log (the truth), the consume log derived from it, group commit, recovery,
retention.

`files.py` is the only way to the disk, `format.py` describes what lies there.
"""
