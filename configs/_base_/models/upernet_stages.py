# UperNet for backbones of four stages, with mmseg's usual settings. A config adds the backbone and
# the in_channels of both heads.
_base_ = './upernet_vit.py'

model = dict(
    neck=None,
    decode_head=dict(channels=512),
    test_cfg=dict(_delete_=True, mode='whole'),
)
