from .plain_vit_fpn import LayerNorm2d, PlainViTFPN

SimpleFPN = PlainViTFPN  # the old name, in configs too, until version 0.2

__all__ = ['LayerNorm2d', 'PlainViTFPN', 'SimpleFPN']
