# ./deim_vit_rope_mixed_shapes.py with ECSeg's masks: instances of shapes, which no box describes.
# rope-dense demo --config configs/demo/deim_masks_vit_rope_mixed_shapes.py --work-dir DIR
_base_ = './deim_vit_rope_mixed_shapes.py'

from rope_dense.models.deim.recipe import with_masks

globals().update(with_masks(_base_, {}))
