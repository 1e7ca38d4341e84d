"""Search: messages of a subject by key, header, text and time, in the live log.

    query.py     what is looked for, and what is found
    matching.py  one batch: which of its messages match
    slices.py    a slice of a search: which batches are read next, in a thread
    scan.py      the search: slice after slice, within bounds

Only what readers may see is found. Messages for later are not there yet, so they are not found: `GET
/delay/list` lists those.
"""
