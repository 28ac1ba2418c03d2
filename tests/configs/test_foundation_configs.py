"""The configs of configs/foundation: they fit the weights that they name, and they train."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS
from mmengine.structures import InstanceData, PixelData
from torch import Tensor, nn

from helpers.foundation import (
    ALL,
    FOLDER,
    OTHER_WEIGHTS,
    SIZES,
    VARIANTS,
    build_offline,
    head_and_family,
    load,
)
from helpers.grid import CONFIGS, read
from helpers.published_meta import sapiens2, vjepa2_1
from helpers.small_checkpoints import load as load_weights
from helpers.small_checkpoints import saved
from rope_dense.backbones import RoPEViT

every_config = pytest.mark.parametrize('name', ALL)
# The first of each head; the others differ in their weights, which a forward pass shows.
FIRST = {name.split('_')[0]: name for name in reversed(ALL)}.values()
FIRST_QUICK = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in FIRST)) for name in ALL
]
WEIGHTS = {
    'lingbot': 'hf-hub:robbyant/lingbot-vision-vit-base',
    'dinov3': 'hf-hub:timm/vit_base_patch16_dinov3.lvd1689m',
    'eva02': 'hf-hub:timm/eva02_base_patch14_224.mim_in22k',
    'pe-spatial': 'hf-hub:timm/vit_pe_spatial_base_patch16_512.fb',
    'pe-lang-l': 'hf-hub:timm/vit_pe_lang_large_patch14_448.fb',
    'qwen3-88m': 'hf-hub:timm/qwen3_vit_88m_enc.qwen3_5_0_8b',
    'rice-l': 'hf-hub:DeepGlint-AI/rice-vit-large-patch14-560',
    'vjepa21': 'https://dl.fbaipublicfiles.com/vjepa2/vjepa2_1_vitb_dist_vitG_384.pt',
    'sapiens2-01b': 'https://huggingface.co/facebook/sapiens2-pretrain-0.1b/resolve/main/'
    'sapiens2_0.1b_pretrain.safetensors',
}
IN_TIMM = {name: checkpoint.split('/')[1] for name, checkpoint in WEIGHTS.items()}
IN_TIMM['lingbot'] = 'vit_base_patch16_lingbot.robbyant'
# Others have one.
PREFIX_TOKENS = {
    'lingbot': 5,
    'dinov3': 5,
    'qwen3-88m': 0,
    'vjepa21': 0,
    'sapiens2-01b': 9,
}
FROZEN, DETECTORS = ('linear', 'dpt'), ('dino', 'deim')
SMALL_HEADS = {
    'dino-vitdet': {
        'num_queries': 10,
        'encoder.num_layers': 1,
        'encoder.layer_cfg.ffn_cfg.feedforward_channels': 32,
        'decoder.num_layers': 1,
        'decoder.layer_cfg.ffn_cfg.feedforward_channels': 32,
        'dn_cfg.group_cfg.num_dn_queries': 4,
        'bbox_head.num_classes': 6,
        'test_cfg.max_per_img': 10,
        'neck.0.in_channels': 32,
    },
    'upernet': {
        'backbone.out_indices': (0, 1, 2, 3),
        'data_preprocessor.size': (112, 112),
        'neck.embed_dim': 32,
        'decode_head.in_channels': [32] * 4,
        'decode_head.channels': 16,
        'decode_head.num_classes': 6,
        'auxiliary_head.in_channels': 32,
        'auxiliary_head.channels': 16,
        'auxiliary_head.num_classes': 6,
    },
    'deimv2-x': {
        'backbone.out_indices': (0, 2, 3),
        'neck.in_channels': 32,
        'neck.stem_channels': 4,
        'neck.out_channels': 32,
        'encoder.in_channels': (32, 32, 32),
        'encoder.embed_dims': 32,
        'encoder.feedforward_channels': 32,
        'encoder.num_blocks': 1,
        'bbox_head.num_classes': 6,
        'bbox_head.embed_dims': 32,
        'bbox_head.num_queries': 10,
        'bbox_head.decoder.num_layers': 2,
        'bbox_head.decoder.feedforward_channels': 32,
        'test_cfg.max_per_img': 10,
    },
    'linear': {
        'data_preprocessor.size': (112, 112),
        'decode_head.in_channels': 32,
        'decode_head.num_classes': 6,
    },
    'linear-fine': {
        'data_preprocessor.size': (112, 112),
        'decode_head.in_channels': 32,
        'decode_head.num_classes': 6,
        'neck.init_cfg': None,
    },
    'dpt': {
        'backbone.out_indices': (0, 1, 2, 3),
        'data_preprocessor.size': (112, 112),
        'decode_head.in_channels': [32] * 4,
        'decode_head.embed_dims': 32,
        'decode_head.channels': 16,
        'decode_head.post_process_channels': [8, 8, 16, 16],
        'decode_head.num_classes': 6,
    },
}


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.glob('*.py')} == {*ALL}
    assert VARIANTS.keys() == SIZES.keys()


# What belongs to the weights: the backbone, its colours and channels, and sizes in whole patches.
OF_WEIGHTS = re.compile(
    r'model\.backbone\..+|model\.data_preprocessor\.(mean|std|size|test_cfg|pad_size_divisor)'
    r'|model\.(neck|decode_head)\.in_channels|model\.test_cfg\.(crop_size|stride)'
    r'|model\.data_preprocessor\.batch_augments'
)


@pytest.mark.parametrize('name', OTHER_WEIGHTS)
def test_other_weights_change_what_belongs_to_them(name: str) -> None:
    mine, base = (
        load(name).to_dict(),
        read(CONFIGS / f'{OTHER_WEIGHTS[name]}.py').to_dict(),
    )
    changed = [*differences(mine, base)]
    assert 'model.backbone.arch' in changed
    assert not [path for path in changed if not OF_WEIGHTS.fullmatch(path)]
    augments, theirs = (
        c['model']['data_preprocessor'].get('batch_augments') for c in (mine, base)
    )
    if augments != theirs:  # batches of whole patches
        new = dict(augments[1], base=640)
        assert new.pop('divisor') == 56 and [augments[0], new] == theirs


def differences(cfg: dict, other: dict, path: str = '') -> Iterator[str]:
    """Paths of what two configs do not have alike."""
    for key in cfg.keys() | other.keys():
        a, b = cfg.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from differences(a, b, f'{path}{key}.')
        elif a != b:
            yield f'{path}{key}'


@every_config
def test_named_weights_fit(
    timm: ModuleType, transformers: ModuleType, name: str, tmp_path: Path
) -> None:
    (head, family), backbone = head_and_family(name), load(name).model.backbone
    assert backbone.pop('init_cfg') == dict(
        type='Pretrained', checkpoint=WEIGHTS[family]
    )
    assert backbone.pop('type') == (
        'RoPEViTWithImage' if head == 'linear-fine' else 'RoPEViT'
    )
    with torch.device('meta'):
        if family == 'rice-l':
            sizes = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24)
            model = transformers.MLCDVisionModel(transformers.MLCDVisionConfig(**sizes))
            weights = model.state_dict()
        elif family == 'vjepa21':
            weights = {'ema_encoder': vjepa2_1(768, 12, hidden=3072)}
        elif family == 'sapiens2-01b':
            weights = sapiens2(768, 12, heads=12, shared=range(0))
        else:
            weights = timm.create_model(IN_TIMM[family].split('.')[0]).state_dict()
        path = saved(weights, tmp_path)
        model = load_weights(RoPEViT, path, **backbone)
    assert bool(model.window_blocks) == (head == 'dino-vitdet')
    # EVA-02's detectors do without the class token.
    dropped = (head, family) == ('dino-vitdet', 'eva02')
    assert model.arch.num_prefix_tokens == (
        0 if dropped else PREFIX_TOKENS.get(family, 1)
    )


@every_config
def test_colours_are_those_of_the_weights(timm: ModuleType, name: str) -> None:
    family, preprocessor = head_and_family(name)[1], load(name).model.data_preprocessor
    # EVA-02's authors fine-tune with ImageNet's, which are DINOv3's, not with the pre-training's.
    # Colours of RICE are CLIP's, of V-JEPA and Sapiens2 ImageNet's.
    others = {'rice-l': IN_TIMM['eva02']}
    others |= dict.fromkeys(('eva02', 'vjepa21', 'sapiens2-01b'), IN_TIMM['dinov3'])
    published = others.get(family, IN_TIMM[family])
    settings = timm.models.get_pretrained_cfg(published)
    for given, expected in (
        (preprocessor.mean, settings.mean),
        (preprocessor.std, settings.std),
    ):
        assert given == pytest.approx([255 * value for value in expected], abs=1e-2)


@every_config
def test_images_are_whole_patches(name: str) -> None:
    model = load(name).model
    pixels = [model.data_preprocessor.get('pad_size_divisor', 1)]
    if 'size' in model.data_preprocessor:
        pixels = [*model.data_preprocessor['size'], *model.test_cfg.crop_size]
    if head_and_family(name) == ('upernet', 'eva02'):
        pixels += [
            model.data_preprocessor.test_cfg.size_divisor,
            model.backbone.img_size,
        ]
    patch = build_offline(name).backbone.patch_embed.patch_size
    of_14 = ('eva02', 'rice', 'pe-lang')
    assert patch == (14 if any(family in name for family in of_14) else 16)
    assert pixels == [1] or not any(side % patch for side in pixels)


@every_config
def test_what_is_not_frozen_is_trained(name: str) -> None:
    model, wrapper = build_offline(name), load(name).optim_wrapper
    groups = build_optim_wrapper(model, wrapper).optimizer.param_groups
    parts = [model.backbone, getattr(model, 'neck', nn.Identity())]
    frozen = [x for part in parts for x in part.parameters() if name.startswith(FROZEN)]
    expected = len(list(model.parameters())) - len(frozen)
    assert sum(len(group['params']) for group in groups) == expected > 0


def shrunk(name: str) -> nn.Module:
    """The model of a config with four blocks of 32 channels, and its parts as small."""
    cfg = load(name)
    arch = dict(
        RoPEViT.ARCHS[cfg.model.backbone.arch], embed_dims=32, depth=4, num_heads=2
    )
    cfg.model.backbone.update(arch=arch, init_cfg=None, drop_path_rate=0.0)
    if cfg.model.backbone.get('window_block_indexes'):
        cfg.model.backbone.update(window_block_indexes=(0, 2), window_size=2)
    overrides = SMALL_HEADS[head_and_family(name)[0]]
    cfg.merge_from_dict({f'model.{key}': value for key, value in overrides.items()})
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    model.init_weights()  # mmdet leaves some parameters as memory was until then
    return model


def batch(name: str) -> dict:
    """Two images that no patch divides, with what is to be found in them."""
    sizes = [(100, 75), (90, 110)]
    images = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    sample = detected if name.startswith(DETECTORS) else segmented
    return dict(inputs=images, data_samples=[sample(size) for size in sizes])


def detected(size: tuple[int, int]) -> object:
    from mmdet.structures import DetDataSample

    boxes, labels = torch.tensor([[5.0, 8.0, 60.0, 50.0]]), torch.tensor([2])
    meta = dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0))
    return DetDataSample(
        metainfo=meta, gt_instances=InstanceData(bboxes=boxes, labels=labels)
    )


def segmented(size: tuple[int, int]) -> object:
    from mmseg.structures import SegDataSample

    labels = PixelData(data=torch.randint(0, 6, (1, *size)))
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0))
    return SegDataSample(metainfo=meta, gt_sem_seg=labels)


@pytest.mark.parametrize('name', FIRST_QUICK)
def test_loss_and_backward(name: str) -> None:
    model = shrunk(name).train()
    data = model.data_preprocessor(batch(name), training=True)
    loss, logged = model.parse_losses(model(**data, mode='loss'))
    assert torch.isfinite(loss) and len(logged) > 1
    loss.backward()
    without = {
        key for key, param in model.named_parameters() if not has_gradient(param.grad)
    }
    in_backbone = {
        key for key, _ in model.named_parameters() if key.startswith('backbone.')
    }
    if name.startswith(FROZEN):
        in_neck = {
            key for key, _ in model.named_parameters() if key.startswith('neck.')
        }
        assert without == in_backbone | in_neck
    else:
        assert not without & in_backbone
    side = data['inputs'].shape[-1]
    assert side % model.backbone.out_strides[0] == 0 or 'eva02' not in name


def has_gradient(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.abs().sum() > 0)


@pytest.mark.parametrize('name', [name for name in ALL if name.startswith(FROZEN)])
def test_nothing_of_a_frozen_backbone_is_kept_for_backward(name: str) -> None:
    model = shrunk(name).train()
    data = model.data_preprocessor(batch(name), training=True)
    with torch.no_grad():
        maps = model.extract_feat(data['inputs'])
    head, samples = model.decode_head, data['data_samples']
    by_head = kept_bytes(lambda: head.loss(maps, samples, model.train_cfg))
    assert kept_bytes(lambda: model(**data, mode='loss')) == by_head > 0


def kept_bytes(forward: Callable[[], object]) -> int:
    """Size of all tensors that autograd keeps in a forward pass."""
    storages: dict[
        int, torch.UntypedStorage
    ] = {}  # which keeps their addresses from reuse

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for storage in storages.values())


@every_config
@torch.no_grad()
def test_predictions_have_the_size_of_the_image(name: str) -> None:
    model = shrunk(name).eval()
    data = batch(name)
    for image, sample in zip(data['inputs'], data['data_samples'], strict=True):
        inputs = model.data_preprocessor(dict(inputs=[image], data_samples=[sample]))
        (result,) = model(**inputs, mode='predict')
        if name.startswith(DETECTORS):
            assert torch.isfinite(result.pred_instances.bboxes).all()
        else:
            assert tuple(result.pred_sem_seg.shape) == sample.ori_shape
