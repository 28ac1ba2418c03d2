# ./deim_vit_rope_mixed_shapes.py with ECSeg's masks: instances of shapes, which no box describes.
# python tools/make_shapes.py work_dirs/demo/data --layout coco --train 2000 --val 100 --size 160
# python tools/train.py configs/demo/deim_masks_vit_rope_mixed_shapes.py
_base_ = './deim_vit_rope_mixed_shapes.py'

from rope_dense.cli.dense_stages import with_masks

model = dict(type='DEIM')
globals().update(with_masks(_base_, model))
