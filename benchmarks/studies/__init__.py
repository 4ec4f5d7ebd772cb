"""Larger studies: those of the papers, and what choosers of group sizes are worth."""
