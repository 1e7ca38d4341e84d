"""`kumquat-spark search`: messages of a subject or an archive by key, header, text and time."""
