"""Who may read which subject, and whether members share it."""
