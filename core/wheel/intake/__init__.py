"""How delayed messages come in: a batch is split; its records are parked, or cancel or move others."""
