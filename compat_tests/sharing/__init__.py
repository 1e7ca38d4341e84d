"""Stories of members that share a subject: every client, and all of them together."""
