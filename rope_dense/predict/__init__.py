"""Predict files: images, folders and videos, also in tiles, and write what is found."""
