"""One subject into another, each message id once within a window."""
