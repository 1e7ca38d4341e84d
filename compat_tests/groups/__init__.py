"""Stories of groups."""
