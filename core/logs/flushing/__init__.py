"""The Trio side of commit, for both logs: running rounds beside the event loop, and waiting for them."""
