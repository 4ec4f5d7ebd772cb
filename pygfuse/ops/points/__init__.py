"""Operators on points: searches for neighbours, and functions of distances."""
