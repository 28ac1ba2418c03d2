"""The definition of the rotation, and its implementations.

An implementation has ``can_use``, which gives a reason why not, or None, and ``rotate`` and
``rotate_backward`` with the signatures of ``packed``. All see tensors only.
"""
