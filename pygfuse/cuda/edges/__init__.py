"""Which edges a walk takes, and in which order."""
