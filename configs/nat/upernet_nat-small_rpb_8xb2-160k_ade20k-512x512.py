# UperNet, NAT-Small, bias. As published: 48.0 mIoU at one scale, 49.5 at several.
_base_ = './upernet_nat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/nat/checkpoints/CLS/nat_small.pth'
backbone = dict(arch='nat_small', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
head, auxiliary = dict(in_channels=[96, 192, 384, 768]), dict(in_channels=384)
model = dict(backbone=backbone, decode_head=head, auxiliary_head=auxiliary)
del weights, backbone, head, auxiliary
