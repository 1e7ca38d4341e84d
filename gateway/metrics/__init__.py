"""What the broker says about itself to machines that watch it: metrics and health."""
