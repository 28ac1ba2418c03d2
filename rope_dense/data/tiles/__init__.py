"""Detection and segmentation of images that are larger than memory."""
