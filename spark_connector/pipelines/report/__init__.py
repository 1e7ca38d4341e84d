"""What is in subjects, by hour, as a table and as a page."""
