"""The command line: kumquat serve, dump, delay, groups, dlq."""
