"""Copying messages into a subject, each once, also when a batch is run again."""
