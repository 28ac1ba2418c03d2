"""Fast paths of the rotation. Each offers ``can_use``, which returns a reason against it or None."""
