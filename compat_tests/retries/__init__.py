"""Messages that a stock client could not handle: they come again, or become dead letters."""
