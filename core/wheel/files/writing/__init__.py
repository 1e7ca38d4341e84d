"""Schedule files as they are written: by a fill, and by a merge of neighbouring ones."""
