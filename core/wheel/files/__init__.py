"""Schedule files: parked messages on disk, by hour and subject. Writing, reading, merging, repairing."""
