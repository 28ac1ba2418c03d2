"""Fast paths of the rotation. Each has ``can_use``, which gives a reason against it, or None."""
