# UperNet, DiNAT-s-Tiny, bias. As published: 46.0 mIoU at one scale, 47.4 at several.
_base_ = './upernet_nat-mini_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_tiny_in1k_224.pth'
dilations = ((1, 16), (1, 8), (1, 2, 1, 3, 1, 4), (1, 2))
backbone = dict(arch='dinat_s_tiny', dilations=dilations, drop_path_rate=0.3)
backbone.update(init_cfg=dict(checkpoint=weights))
head, auxiliary = dict(in_channels=[96, 192, 384, 768]), dict(in_channels=384)
model = dict(backbone=backbone, decode_head=head, auxiliary_head=auxiliary)
del weights, backbone, dilations, head, auxiliary
