"""/dlq…: dead letters: where they are, what is in them, sending them back, giving them up.

    GET  /dlq?after=SUBJECT&limit=N          dead-letter subjects, with open letters by reason
    GET  /dlq/letters?…&after=C&limit=N      letters
    GET  /dlq/show?subject=S&sequence=N      one, with all its headers and its value
    POST /dlq/redrive {…, "to": SUBJECT}     send letters back to where they came from, or elsewhere
    POST /dlq/purge   {…}                    give letters up: they are never listed again

A letter is *open* until it was sent back or given up; only open ones are listed, sent or given up. Which
letters are meant: `subject` (the dead-letter subject; else all of them), `origin`, `group`, `reason`,
`key`, `header` (name=value), `since` and `until` (when they died); those that fit all that is given.

Whatever goes through many letters is done in parts: `next` in an answer says where to go on (`after`), null
that this was all. So no request takes long, and the client sets the pace. A redrive that was cut off can
be repeated: what was sent back is no longer open. With `dry_run` nothing is changed, and the answer says
what would be.

    wanted.py    which letters are meant, and in which subjects: from the arguments of a request
    views.py     letters in answers
    looking.py   the GETs
    moving.py    the POSTs

What is done to letters is in core/delivery/dead_letters/redrive.py.
"""
