"""Necks, heads, detectors, segmentors and classifiers for the backbones.

Each is in a module of its own: they need different packages.
"""
