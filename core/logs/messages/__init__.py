"""The message log: the only copy of every message, and what is derived from it."""
