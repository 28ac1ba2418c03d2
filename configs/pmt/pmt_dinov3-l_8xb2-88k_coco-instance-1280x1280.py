# PMT on DINOv3 ViT-L, COCO instance, 1280 x 1280, 12 epochs. The authors have 49.0 mask AP.
# Recipe: tue-mps/pmt at 54d73c9, image/configs/coco/instance/pmt_l_1280.yaml and the code that
# reads it.
# The config for 640 with larger images.
_base_ = './pmt_dinov3-l_8xb2-88k_coco-instance-640x640.py'

from rope_dense.utils.config_parts import with_steps

size = (1280, 1280)
train_dataloader = with_steps(
    _base_.train_dataloader,
    RandomResize=dict(scale=size),
    RandomCrop=dict(crop_size=size),
    PadBottomRight=dict(size=size),
)
val_dataloader = with_steps(_base_.val_dataloader, Resize=dict(scale=size))
test_dataloader = val_dataloader
del size  # an override of this key would change nothing
