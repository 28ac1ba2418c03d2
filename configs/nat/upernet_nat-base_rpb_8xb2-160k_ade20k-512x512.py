# UperNet, NAT-Base, bias. As published: 48.5 mIoU at one scale, 49.7 at several.
_base_ = './upernet_nat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/nat/checkpoints/CLS/nat_base.pth'
backbone = dict(arch='nat_base', drop_path_rate=0.5, init_cfg=dict(checkpoint=weights))
head, auxiliary = dict(in_channels=[128, 256, 512, 1024]), dict(in_channels=512)
model = dict(backbone=backbone, decode_head=head, auxiliary_head=auxiliary)
del weights, backbone, head, auxiliary
