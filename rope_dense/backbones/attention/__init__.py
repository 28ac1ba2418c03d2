"""Attention of the blocks, and the plans of windows and neighbourhoods that it works on."""
