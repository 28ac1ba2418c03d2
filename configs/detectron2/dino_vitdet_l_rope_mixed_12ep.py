# DINO-ViTDet-L with RoPE-Mixed, COCO, 12 epochs, for detrex. The paper, which uses detrex,
# reports 52.9 box AP (Table 1).
# Recipe: detrex at e244e6c, projects/dino/configs/dino-vitdet/dino_vitdet_large_4scale_12ep.py. It
# is loaded, with its warm-up and its drop of the learning rate at 72000 (the milestones of a longer
# schedule). Otherwise as for ViT-B.
from detectron2.config import LazyConfig
from projects import dino

from .backbones import vit_l

dataloader, lr_multiplier, model, optimizer, train = LazyConfig.load(
    f'{dino.__path__[0]}/configs/dino-vitdet/dino_vitdet_large_4scale_12ep.py',
    ('dataloader', 'lr_multiplier', 'model', 'optimizer', 'train'),
)
model.backbone.net = vit_l
model.backbone.in_feature = 'last_feat'
train.init_checkpoint = ''  # the backbone loads its weights itself
train.output_dir = './output/dino_vitdet_l_rope_mixed_12ep'
dataloader.evaluator.output_dir = train.output_dir
optimizer.params.overrides = {'freqs': {'weight_decay': 0.0}}
