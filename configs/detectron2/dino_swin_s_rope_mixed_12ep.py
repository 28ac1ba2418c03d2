# DINO-Swin-S with RoPE-Mixed, COCO, 12 epochs, for detrex. The paper, which uses detrex,
# reports 53.3 box AP (Table 2).
# Recipe: detrex at e244e6c, projects/dino/configs/dino-swin/dino_swin_small_224_4scale_12ep.py,
# loaded without the relative position bias; window 7 as in pre-training, ImageNet-1k weights.
# Where no source settles it: frequencies have no weight decay (the rule of their pre-training).
from detectron2.config import LazyConfig
from projects import dino

from .backbones import swin_s

dataloader, lr_multiplier, model, optimizer, train = LazyConfig.load(
    f'{dino.__path__[0]}/configs/dino-swin/dino_swin_small_224_4scale_12ep.py',
    ('dataloader', 'lr_multiplier', 'model', 'optimizer', 'train'),
)
model.backbone = swin_s
train.init_checkpoint = ''  # the backbone loads its weights itself
train.output_dir = './output/dino_swin_s_rope_mixed_12ep'
dataloader.evaluator.output_dir = train.output_dir
optimizer.params.overrides = {'freqs': {'weight_decay': 0.0}}
