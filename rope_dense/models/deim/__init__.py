"""Real-time detection: DEIMv2 and ECDet on any backbone, at any image size."""
