"""Operators on rows that have types, a matrix for each."""
