"""Messages for later: how they are parked, kept by the hour, found again and delivered when due."""
