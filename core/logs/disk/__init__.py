"""What both logs need of the disk: files, the data folder, commit, and reading bytes that may be
damaged."""
