"""Plans: what runs in place of the captured code, written out as lines of Python."""
