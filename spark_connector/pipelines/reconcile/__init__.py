"""What one side has and the other lacks."""
