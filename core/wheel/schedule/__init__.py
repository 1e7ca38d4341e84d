"""What is known of parked messages, in memory, and the decisions about them. No Trio, no disk."""
