"""Stories of producing and reading, client by client."""
