"""The Encoder-only Mask Transformer: queries among the tokens of a ViT."""
