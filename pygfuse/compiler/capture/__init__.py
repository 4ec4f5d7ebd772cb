"""The capture of a layer: its code is run on symbols, and what it reads around it is guarded."""
