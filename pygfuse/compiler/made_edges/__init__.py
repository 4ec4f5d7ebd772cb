"""Edges that a module makes of those of a call: how they are recorded, and made again in each call."""
