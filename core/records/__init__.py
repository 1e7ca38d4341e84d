"""Kafka's record batches: the only place that knows a batch's bytes.

batch.py        the head, and the checks on append
look.py         one look at a batch that a client sends: which way does it go?
marks.py        the search for headers that ask something of the broker
frames.py       what compressed data says about itself
compression.py  inflating, within bounds, and compressing
records.py      single records
keys.py         their keys alone
cut.py          some of the records of a batch as a batch of its own
rewrite.py      records with headers appended, as a new batch
"""

from kumquat.core.records.batch import BatchHead, check, damage, read_head
from kumquat.core.records.records import Record, records_of

__all__ = ["BatchHead", "Record", "check", "damage", "read_head", "records_of"]
