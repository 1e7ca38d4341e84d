"""Subjects as topics: made, changed, deleted, and listed for Metadata."""
