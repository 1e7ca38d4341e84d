"""What both logs need of the disk: files, the data folder, syncing, reading bytes that may be damaged."""
