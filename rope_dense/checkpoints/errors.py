class CheckpointError(ValueError):
    """A checkpoint that cannot be had, read or used; the message says why and what to do."""
