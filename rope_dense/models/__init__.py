"""What stands on a backbone: necks, heads, detectors, segmentors, classifiers.

Each is in a module of its own: they need different packages.
"""
