"""The broker as a process: start and stop, signals, garbage, logging, the tracer of long steps."""
