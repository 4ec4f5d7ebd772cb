"""Larger studies: what choosers of group sizes are worth."""
