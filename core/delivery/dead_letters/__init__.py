"""Dead letters: messages that a group could not handle, written where people can see them.

names.py         which subject they go to
letters.py       what is added to a record that becomes one, and read back from it
backlog.py       what is to be written next, and what failed: decisions
packing.py       which letters go into one batch: decisions
join.py          the message log's word on what is settled, brought into the action log: decisions
reader.py        reads the messages
settling.py      writes messages that settle others, and sees to it that both logs know
open_letters.py  which letters are open, and which ones are meant: decisions
redrive.py       what people do with them: find, send back, purge
service.py       the task that writes them, and all of it in one object for the broker
"""
