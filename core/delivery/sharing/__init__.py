"""Fetch of members that share a subject: hand-outs, and the bytes of leased messages."""
