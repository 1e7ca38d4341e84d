"""/groups…: what an operator sees of groups, and may change.

    GET  /groups?after=NAME&limit=N                              all groups, in pages: listing.py
    GET  /groups/describe?group=G&after=SUBJECT&limit=N          one, with members and subjects: describe.py
    POST /groups/reset  {"group": G, "subject": S, "to": …}      go on somewhere else: reset.py
    POST /groups/skip   {"group": G, "subject": S, "to": N}      past what is damaged: skip.py

standing.py has the numbers that the first two show of a subject.
"""
