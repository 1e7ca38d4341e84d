"""One file for each page: reads what the browser asks, asks a view, renders. No numbers are made here."""
