"""Recipes for a user's own data: settings, and a config derived from the settings and the data."""
