"""Delayed messages: parked when they are produced, delivered when they are due. Begin with service.py."""
