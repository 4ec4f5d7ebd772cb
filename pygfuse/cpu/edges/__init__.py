"""Which edges a walk takes, and in which order: sorts, cuts, blocks and paths."""
