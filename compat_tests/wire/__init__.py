"""Requests by hand: what no client lets one send."""
