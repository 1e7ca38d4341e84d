"""Delivery: cursors, leases, redelivery. Pure: no clock, no files, no sockets."""
