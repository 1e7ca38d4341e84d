"""What the pipelines share."""
