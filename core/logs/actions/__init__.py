"""The action log: what groups, members and consumers did. Progress is replayed from it."""
