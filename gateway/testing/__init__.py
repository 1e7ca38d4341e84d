"""A real broker for tests, and the pytest fixture."""
