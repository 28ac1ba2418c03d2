"""The configs of configs/foundation: they fit the weights that they name, and they train."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from grid import CONFIGS
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from small_checkpoints import load as load_weights
from small_checkpoints import saved
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT

FOLDER = CONFIGS / 'foundation'
NAMES = [
    f'{task}_{weights}-b_{schedule}'
    for task, schedule in (
        ('dino-vitdet', '8xb2-90k_coco'),
        ('upernet', '8xb2-160k_ade20k-512x512'),
    )
    for weights in ('lingbot', 'dinov3', 'eva02')
]
every_config = pytest.mark.parametrize('name', NAMES)
WEIGHTS = {
    'lingbot': 'hf-hub:robbyant/lingbot-vision-vit-base',
    'dinov3': 'hf-hub:timm/vit_base_patch16_dinov3.lvd1689m',
    'eva02': 'hf-hub:timm/eva02_base_patch14_224.mim_in22k',
}
IN_TIMM = {name: checkpoint.split('/')[1] for name, checkpoint in WEIGHTS.items()}
IN_TIMM['lingbot'] = 'vit_base_patch16_lingbot.robbyant'
DETECTION = {
    'num_queries': 10,
    'encoder.num_layers': 1,
    'encoder.layer_cfg.ffn_cfg.feedforward_channels': 32,
    'decoder.num_layers': 1,
    'decoder.layer_cfg.ffn_cfg.feedforward_channels': 32,
    'dn_cfg.group_cfg.num_dn_queries': 4,
    'bbox_head.num_classes': 6,
    'test_cfg.max_per_img': 10,
    'neck.0.in_channels': 32,
}
SEGMENTATION = {
    'neck.embed_dim': 32,
    'decode_head.in_channels': [32] * 4,
    'decode_head.channels': 16,
    'decode_head.num_classes': 6,
    'auxiliary_head.in_channels': 32,
    'auxiliary_head.channels': 16,
    'auxiliary_head.num_classes': 6,
}


def load(name: str) -> Config:
    cfg = Config.fromfile(FOLDER / f'{name}.py')
    init_default_scope(cfg.default_scope)
    return cfg


def family(name: str) -> str:
    return name.split('_')[1].removesuffix('-b')


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.glob('*.py')} == set(NAMES)


@every_config
def test_named_weights_fit(timm: ModuleType, name: str, tmp_path: Path) -> None:
    backbone = load(name).model.backbone
    assert backbone.pop('init_cfg') == dict(type='Pretrained', checkpoint=WEIGHTS[family(name)])
    assert backbone.pop('type') == 'RoPEViT'
    with torch.device('meta'):
        weights = timm.create_model(IN_TIMM[family(name)].split('.')[0])
        path = saved(weights.state_dict(), tmp_path)
        model = load_weights(RoPEViT, path, **backbone)
    windows = name == 'dino-vitdet_eva02-b_8xb2-90k_coco'
    assert bool(model.window_blocks) == windows
    assert model.arch.num_prefix_tokens == (0 if windows else 1 if 'eva02' in name else 5)


@every_config
def test_images_are_whole_patches_in_the_colours_of_the_weights(
    timm: ModuleType, name: str
) -> None:
    cfg, settings = load(name), timm.models.get_pretrained_cfg(IN_TIMM[family(name)])
    preprocessor = cfg.model.data_preprocessor
    for given, expected in ((preprocessor.mean, settings.mean), (preprocessor.std, settings.std)):
        assert given == pytest.approx([255 * value for value in expected], abs=1e-2)
    if family(name) == 'eva02':
        pixels = [preprocessor.get('pad_size_divisor', 14)]
        if 'upernet' in name:
            pixels = [*preprocessor.size, preprocessor.test_cfg.size_divisor]
            pixels += [cfg.model.backbone.img_size, *cfg.model.test_cfg.crop_size]
        assert not any(side % 14 for side in pixels)


@every_config
def test_every_parameter_is_trained(name: str) -> None:
    cfg = load(name)
    cfg.model.backbone.init_cfg = None
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    assert sum(len(group['params']) for group in groups) == len(list(model.parameters()))


def shrunk(name: str) -> nn.Module:
    """The model of a config with four blocks of 32 channels, and its parts as small."""
    cfg = load(name)
    arch = dict(RoPEViT.ARCHS[cfg.model.backbone.arch], embed_dims=32, depth=4, num_heads=2)
    cfg.model.backbone.update(arch=arch, init_cfg=None, drop_path_rate=0.0)
    if cfg.model.backbone.get('window_block_indexes'):
        cfg.model.backbone.update(window_block_indexes=(0, 2), window_size=2)
    if name.startswith('upernet'):
        cfg.model.backbone.out_indices = (0, 1, 2, 3)
        cfg.model.data_preprocessor.size = (112, 112)
    overrides = SEGMENTATION if name.startswith('upernet') else DETECTION
    cfg.merge_from_dict({f'model.{key}': value for key, value in overrides.items()})
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    model.init_weights()  # mmdet leaves some parameters as memory was until then
    return model


def batch(name: str) -> dict:
    """Two images that no patch divides, with what is to be found in them."""
    sizes = [(100, 75), (90, 110)]
    images = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    sample = segmented if name.startswith('upernet') else detected
    return dict(inputs=images, data_samples=[sample(size) for size in sizes])


def detected(size: tuple[int, int]) -> object:
    from mmdet.structures import DetDataSample

    boxes, labels = torch.tensor([[5.0, 8.0, 60.0, 50.0]]), torch.tensor([2])
    meta = dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0))
    return DetDataSample(metainfo=meta, gt_instances=InstanceData(bboxes=boxes, labels=labels))


def segmented(size: tuple[int, int]) -> object:
    from mmseg.structures import SegDataSample

    labels = PixelData(data=torch.randint(0, 6, (1, *size)))
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0))
    return SegDataSample(metainfo=meta, gt_sem_seg=labels)


@every_config
def test_loss_and_backward(name: str) -> None:
    model = shrunk(name).train()
    data = model.data_preprocessor(batch(name), training=True)
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    assert torch.isfinite(loss) and len(logged) > 1
    loss.backward()
    unused = [key for key, p in model.backbone.named_parameters() if not has_gradient(p.grad)]
    assert not unused
    side = data['inputs'].shape[-1]
    assert side % model.backbone.out_strides[0] == 0 or 'eva02' not in name


def has_gradient(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.abs().sum() > 0)


@every_config
@torch.no_grad()
def test_predictions_have_the_size_of_the_image(name: str) -> None:
    model = shrunk(name).eval()
    data = batch(name)
    for image, sample in zip(data['inputs'], data['data_samples'], strict=True):
        inputs = model.data_preprocessor(dict(inputs=[image], data_samples=[sample]))
        (result,) = model(**inputs, mode='predict')
        if name.startswith('upernet'):
            assert tuple(result.pred_sem_seg.shape) == sample.ori_shape
        else:
            assert torch.isfinite(result.pred_instances.bboxes).all()
