"""Plug-ins of Pillow: with pillow-heif it reads the photographs of phones."""

try:
    from pillow_heif import register_heif_opener
except ImportError:
    # By suffix.
    MISSING = dict.fromkeys(('.heic', '.heif'), ' (pip install pillow-heif)')
else:
    MISSING = {}
    register_heif_opener()
