"""How messages for later come in: a batch is split, records are parked, cancelled, moved."""
