"""Stories with a real Spark."""
