# DINO-ViTDet-B with RoPE-Mixed, COCO, 12 epochs, for detrex. The paper, which uses detrex,
# reports 51.2 box AP (Table 1).
# Recipe: detrex at e244e6c, projects/dino/configs/dino-vitdet/dino_vitdet_base_4scale_12ep.py. It
# is loaded, with rotary instead of absolute and decomposed relative position embedding.
# Where no source settles it, as in ../dino_vitdet: warm-up of 250 iterations, which the shipped
# file lacks, and no weight decay of frequencies.
from detectron2.config import LazyConfig
from projects import dino

from .backbones import vit_b

dataloader, lr_multiplier, model, optimizer, train = LazyConfig.load(
    f'{dino.__path__[0]}/configs/dino-vitdet/dino_vitdet_base_4scale_12ep.py',
    ('dataloader', 'lr_multiplier', 'model', 'optimizer', 'train'),
)
model.backbone.net = vit_b
model.backbone.in_feature = 'last_feat'
train.init_checkpoint = ''  # the backbone loads its weights itself
train.output_dir = './output/dino_vitdet_b_rope_mixed_12ep'
dataloader.evaluator.output_dir = train.output_dir
lr_multiplier.warmup_length = 250 / train.max_iter  # from 0.001
optimizer.params.overrides = {'freqs': {'weight_decay': 0.0}}
