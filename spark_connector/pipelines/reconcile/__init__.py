"""What one side has and the other has not."""
