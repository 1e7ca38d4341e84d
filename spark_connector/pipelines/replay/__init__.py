"""Messages of a subject or an archive, back into a subject."""
