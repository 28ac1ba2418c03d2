"""Implementations of the rotation.

Each has ``can_use``, which gives a reason why not, or None, and ``rotate`` and ``rotate_backward``
with the signatures of ``packed``. They see tensors only.
"""
