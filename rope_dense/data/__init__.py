"""Data sets: labels, masks and depth maps of users, images, augmentation, generated pictures."""
