"""The Trio tasks of the delay service."""
