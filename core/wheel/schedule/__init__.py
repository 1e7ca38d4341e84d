"""What is known of parked messages, the wheel that holds the next ones, and their delivery."""
