"""Stories of messages for later."""
