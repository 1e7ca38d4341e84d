"""The Trio tasks of the delay service: they call decisions, wait for the disk, and retry what fails."""
