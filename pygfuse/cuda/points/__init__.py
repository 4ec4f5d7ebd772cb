"""Searches for neighbours in space."""
