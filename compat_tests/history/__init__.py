"""The history of messages, as clients see it."""
