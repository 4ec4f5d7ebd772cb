"""Why a message function has no fused form."""


class Refused(Exception):
    """A message function, or what it is called with, has no fused form; its text says why, for `pygfuse.report`."""
