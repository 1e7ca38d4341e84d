"""Requests by hand: what no client can be made to send."""
