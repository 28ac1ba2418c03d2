"""Images as files: what is an image, 16 bits, reading and drawing."""
