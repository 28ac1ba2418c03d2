# UperNet, DiNAT-s-Base, bias. As published: 49.4 mIoU at one scale, 50.2 at several.
_base_ = './upernet_nat-small_rpb_8xb2-160k_ade20k-512x512.py'
weights = 'https://shi-labs.com/projects/dinat/checkpoints/imagenet1k/dinat_s_base_in1k_224.pth'
backbone = dict(arch='dinat_s_base', drop_path_rate=0.3, init_cfg=dict(checkpoint=weights))
backbone.update(dilations=((1, 16), (1, 8), (1, 2, 1, 3, 1, 4), (1, 2)))
head, auxiliary = dict(in_channels=[128, 256, 512, 1024]), dict(in_channels=512)
model = dict(backbone=backbone, decode_head=head, auxiliary_head=auxiliary)
del weights, backbone, head, auxiliary
