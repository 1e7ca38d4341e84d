"""Kafka's record batches: the head, the checks on append, compression, single records."""

from kumquat.core.records.batch import BatchHead, check, damage, read_head
from kumquat.core.records.records import Record, records_of

__all__ = ["BatchHead", "Record", "check", "damage", "read_head", "records_of"]
