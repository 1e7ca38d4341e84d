"""Schedule files: parked messages by the hour on disk, their manifest, and finding one of them."""
