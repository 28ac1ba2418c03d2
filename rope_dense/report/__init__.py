"""The report of a model: where it fails, as one HTML page."""
