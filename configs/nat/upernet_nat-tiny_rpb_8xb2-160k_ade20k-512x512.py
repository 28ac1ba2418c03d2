# UperNet, NAT-Tiny, bias. As published: 47.1 mIoU at one scale, 48.4 at several.
_base_ = './upernet_nat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/nat/checkpoints/CLS/nat_tiny.pth'
backbone = dict(arch='nat_tiny', drop_path_rate=0.3, init_cfg=dict(checkpoint=weights))
model = dict(backbone=backbone)
del weights, backbone
