"""Measure a model: accuracy by image size, speed and multiply-adds."""
