"""`kumquat-spark trace`: what became of the messages of a subject, from the broker's history."""
