# ADE20K with the augmentation of Mask2Former for crops of 640 x 640: the sizes for 512 x 512
# times 1.25.
_base_ = './ade20k_mask2former.py'

from rope_dense.utils.config_parts import with_steps

train_dataloader = with_steps(
    _base_.train_dataloader,
    RandomChoiceResize=dict(
        scales=[640 * tenths // 10 for tenths in range(5, 21)], max_size=2560
    ),
    RandomCrop=dict(crop_size=(640, 640)),
    Pad=dict(size=(640, 640)),
)
val_dataloader = with_steps(_base_.val_dataloader, Resize=dict(scale=(2560, 640)))
test_dataloader = val_dataloader
tta_sizes = [
    dict(type='ResizeShortestEdge', scale=scale, max_size=4480)
    for scale in (320, 480, 640, 800, 960, 1120)
]
tta_pipeline = with_steps(
    _base_.tta_pipeline,
    TestTimeAug=dict(transforms=[tta_sizes, *_base_.tta_pipeline[1].transforms[1:]]),
)
del tta_sizes  # an override of this key would change nothing
