"""The broker as a process: start and stop, signals, descriptors, garbage, logging, loop lag."""
