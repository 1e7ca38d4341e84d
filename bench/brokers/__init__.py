"""The brokers that are measured, as child processes."""
