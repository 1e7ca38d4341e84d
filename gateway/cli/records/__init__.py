"""`kumquat produce` and `kumquat consume`: records from stdin, and to stdout."""
