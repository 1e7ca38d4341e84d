"""Connections: accepted, read, dispatched, answered in order, within limits of memory and time."""
