"""Opening the message log: replay, checkpoints, and telling a torn end from corruption."""
