"""Small models with a fixed batch, for one process or for two (test_distributed.py)."""

from __future__ import annotations

import gc
import os
from copy import deepcopy
from pathlib import Path

import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.model import BaseModel, MMDistributedDataParallel
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from helpers.eomt import build as build_eomt
from rope_dense.backbones.base import Backbone
from rope_dense.engine.fsdp import BlockFSDPStrategy, shard_backbone

CONFIGS = Path(__file__).parents[2] / 'configs'
HEIGHT, WIDTH, CLASSES = 64, 96, 7
BOXES = (
    3,
    1,
    3,
    2,
)  # of each image: 4 in the first process, 5 in the second; see `detector`
VIT = dict(
    type='RoPEViT',
    arch=dict(embed_dims=32, depth=4, num_heads=2),
    rope=dict(type='MixedRoPE', theta=10.0),
    drop_path_rate=0.0,
)
SWIN = dict(
    type='RoPESwin',
    arch=dict(embed_dims=16, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8)),
    rope=dict(type='MixedRoPE', theta=10.0),
    window_size=4,
    drop_path_rate=0.0,
    with_cp=True,
)
Batch = tuple[Tensor, list]


def segmentor(backbone: dict, channels: list[int], neck: dict | None) -> nn.Module:
    """UperNet with group norm: batch norm would see another batch in each process."""
    norm = dict(type='GN', num_groups=4)
    head = dict(num_classes=CLASSES, channels=16, dropout_ratio=0.0, norm_cfg=norm)
    loss = dict(type='CrossEntropyLoss', avg_non_ignore=False)
    cfg = dict(
        type='EncoderDecoder',
        backbone=backbone,
        neck=neck and neck | dict(norm_cfg=norm),
        decode_head=dict(
            type='UPerHead', in_channels=channels, in_index=[0, 1, 2, 3], **head
        )
        | dict(pool_scales=(1, 2), align_corners=False, loss_decode=loss),
        train_cfg=dict(),
        test_cfg=dict(mode='whole'),
    )
    return build(cfg, 'mmseg')


def vit_upernet() -> nn.Module:
    neck = dict(type='Feature2Pyramid', embed_dim=32, rescales=[4, 2, 1, 0.5])
    return segmentor(VIT | dict(out_indices=(0, 1, 2, 3)), [32] * 4, neck)


def swin_upernet() -> nn.Module:
    return segmentor(SWIN | dict(out_indices=(0, 1, 2, 3)), [16, 32, 64, 128], None)


def detector() -> nn.Module:
    """PublishedDINO whose denoising queries do not depend on how images are put together.

    The noise is next to none, the number of groups fixed. (Images are padded to the most boxes of
    their process, 3 in each, which is the most of the joined batch too.)
    """
    cfg = Config.fromfile(CONFIGS / '_base_' / 'models' / 'dino.py').model
    encoder, decoder = cfg.encoder.layer_cfg, cfg.decoder.layer_cfg
    for part in (encoder.self_attn_cfg, decoder.self_attn_cfg, decoder.cross_attn_cfg):
        part.embed_dims = 64
    for part in (encoder.ffn_cfg, decoder.ffn_cfg):
        part.update(embed_dims=64, feedforward_channels=64)
    cfg.encoder.num_layers, cfg.decoder.num_layers = 1, 2
    cfg.bbox_head.update(embed_dims=64, num_classes=CLASSES)
    cfg.positional_encoding.num_feats = 32
    cfg.dn_cfg.update(
        label_noise_scale=1e-9,
        box_noise_scale=1e-9,
        group_cfg=dict(dynamic=False, num_groups=2),
    )
    neck = [dict(type='PlainViTFPN', in_channels=32, out_channels=64)]
    cfg.update(num_queries=20, backbone=VIT | dict(with_cls_token=False), neck=neck)
    return build(cfg, 'mmdet')


def real_time_detector() -> nn.Module:
    """DEIM whose denoising queries have no noise, with group norm."""
    norm = dict(type='GN', num_groups=4)
    config = dict(
        type='DEIM',
        backbone=VIT | dict(out_indices=(1, 2, 3)),
        neck=dict(
            type='SpatialTuningAdapter',
            in_channels=32,
            stem_channels=4,
            out_channels=32,
            norm_cfg=norm,
        ),
        encoder=dict(
            type='DEIMEncoder',
            in_channels=(32,) * 3,
            embed_dims=32,
            feedforward_channels=32,
            num_blocks=1,
            expansion=0.5,
            norm_cfg=norm,
        ),
        bbox_head=dict(
            type='DEIMHead',
            num_classes=CLASSES,
            embed_dims=32,
            num_queries=20,
            decoder=dict(num_layers=2, feedforward_channels=32),
            denoising=dict(num_queries=6, label_noise=0.0, box_noise=0.0),
        ),
    )
    return build(config, 'mmdet')


class Queries(BaseModel):
    """EoMT, which runs its backbone block by block."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        settings = {name: value for name, value in VIT.items() if name != 'type'}
        self.backbone, self.eomt = build_eomt(**settings, final_norm=True)

    def forward(self, images: Tensor, samples: list, mode: str) -> dict[str, Tensor]:
        outputs = [
            x for prediction in self.eomt(self.backbone, images) for x in prediction
        ]
        return dict(loss=torch.stack([x.square().mean() for x in outputs]).sum())


def build(cfg: dict, scope: str) -> nn.Module:
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope(scope):
        model = MODELS.build(cfg)
        model.init_weights()
    for name, param in model.named_parameters():
        if 'reg_branches' in name:  # zero at first, which would hide gradients
            nn.init.normal_(param, std=0.02)
    return model


def segmentation_batch() -> Batch:
    torch.manual_seed(1)
    labels = torch.randint(0, CLASSES, (4, 1, HEIGHT, WIDTH))
    labels[0, :, :20] = 255  # ignored: not the same number in each process
    samples = [SegDataSample(gt_sem_seg=PixelData(data=label)) for label in labels]
    return torch.randn(4, 3, HEIGHT, WIDTH), samples


def detection_batch(numbers: tuple[int, ...] = BOXES) -> Batch:
    torch.manual_seed(1)
    samples = []
    for number, width in zip(numbers, (WIDTH, 80, 72, WIDTH), strict=True):
        corner = torch.rand(number, 2) * 30
        sizes = 8 + torch.rand(number, 2) * 24
        truth = InstanceData(
            bboxes=torch.cat([corner, corner + sizes], dim=1),
            labels=torch.randint(0, CLASSES, (number,)),
        )
        shapes = dict(img_shape=(HEIGHT, width), batch_input_shape=(HEIGHT, WIDTH))
        samples.append(DetDataSample(metainfo=shapes, gt_instances=truth))
    return torch.randn(4, 3, HEIGHT, WIDTH), samples


CASES = {
    'vit_upernet': (vit_upernet, segmentation_batch),
    'swin_upernet': (swin_upernet, segmentation_batch),
    'dino': (detector, detection_batch),
    'eomt': (Queries, segmentation_batch),
    'deim': (real_time_detector, detection_batch),
}


def step(model: nn.Module, batch: Batch) -> float:
    """Loss of a batch; its gradients are in the parameters."""
    model.zero_grad()
    bare_model = model.module if isinstance(model, MMDistributedDataParallel) else model
    loss, _ = bare_model.parse_losses(model(*batch, mode='loss'))
    loss.backward()
    return loss.item()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Of whole parameters, where they are sharded too."""
    return {name: whole(param.grad).clone() for name, param in model.named_parameters()}


def whole(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def run_process(rank: int, port: int, folder: str) -> None:
    """One of two processes: every case with its half of the batch, results to `folder`."""
    torch.set_num_threads(1)
    os.environ['LOCAL_RANK'] = str(rank)
    address = f'tcp://127.0.0.1:{port}'
    distributed.init_process_group('gloo', init_method=address, rank=rank, world_size=2)
    for name, (make_model, make_batch) in CASES.items():
        model = MMDistributedDataParallel(make_model(), broadcast_buffers=False)
        loss = step(model, half_of(make_batch(), rank))
        result: dict[str, object] = dict(loss=loss, gradients=gradients(model.module))
        torch.save(result, Path(folder, f'{name}_{rank}.pt'))
        shards = BlockFSDPStrategy(work_dir=folder).prepare(
            make_model(), dispatch_kwargs=BUILT
        )
        loss = step(shards.train(), half_of(make_batch(), rank))
        result = dict(loss=loss, gradients=gradients(shards))
        torch.save(result, Path(folder, f'{name}_sharded_{rank}.pt'))
    # Without boxes in the second process: DDP would say now if a parameter took no part before.
    losses = [
        step(model, half_of(detection_batch((2, 1, 0, 0)), rank)) for _ in range(2)
    ]
    torch.save(
        dict(loss=losses, gradients=gradients(model.module)),
        Path(folder, f'no_boxes_{rank}.pt'),
    )
    for frozen_stages in FROZEN:
        grads = trained_frozen(frozen_stages, rank)
        torch.save(grads, Path(folder, f'frozen_{frozen_stages}_{rank}.pt'))
    torch.save(trained_with_lora(rank), Path(folder, f'lora_{rank}.pt'))
    for name in BACKBONES:
        torch.save(sharded_in_bf16(name, rank), Path(folder, f'{name}_bf16_{rank}.pt'))
    torch.save(trained_copies(rank, Path(folder)), Path(folder, f'copies_{rank}.pt'))
    torch.save(trained_in_shards(rank, Path(folder)), Path(folder, f'shards_{rank}.pt'))
    gc.collect()  # as in rope_dense/commands/errors.py
    distributed.destroy_process_group()


FROZEN = (2, 4, 'all')  # of the 4 blocks of VIT


def trained_frozen(frozen_stages: int | str, rank: int) -> dict[str, Tensor | None]:
    """Gradients of the second step with DDP, which would say if a parameter took no part in the
    first."""
    backbone = VIT | dict(
        out_indices=(0, 1, 2, 3), final_norm=True, frozen_stages=frozen_stages
    )
    neck = dict(type='Feature2Pyramid', embed_dim=32, rescales=[4, 2, 1, 0.5])
    model = MMDistributedDataParallel(
        segmentor(backbone, [32] * 4, neck), broadcast_buffers=False
    )
    for _ in range(2):
        step(model.train(), half_of(segmentation_batch(), rank))
    return {name: param.grad for name, param in model.module.named_parameters()}


def trained_with_lora(rank: int) -> dict[str, Tensor | None]:
    """Gradients of the second step with DDP, of adapters and what is behind the backbone."""
    lora = dict(rank=2, alpha=4.0, targets=('qkv', 'fc1'))
    model = MMDistributedDataParallel(
        segmentor(SWIN | dict(lora=lora), [16, 32, 64, 128], None),
        broadcast_buffers=False,
    )
    for _ in range(2):
        step(model.train(), half_of(segmentation_batch(), rank))
    return {name: param.grad for name, param in model.module.named_parameters()}


BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
BACKBONES = {
    'vit': VIT | dict(with_cls_token=False, window_block_indexes=(0, 2), window_size=3),
    'swin': SWIN
    | dict(
        arch=dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2)), out_indices=(0, 1)
    ),
}


def sharded_in_bf16(name: str, rank: int) -> dict:
    """Gradients of the frequencies of a backbone in bfloat16, and of references in one process."""
    images = torch.randn(
        4, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(1)
    )
    mine = images[2 * rank : 2 * rank + 2]
    float32, mixed, sharded, plain = (small_backbone(name) for _ in range(4))
    map_loss(float32, images).backward()
    for param_name, param in mixed.named_parameters():
        if not param_name.endswith('rope.freqs'):
            param.data = param.data.bfloat16()
    for half in images.bfloat16().chunk(2):
        (map_loss(mixed, half) / 2).backward()
    shard_backbone(sharded, mp_policy=BF16)
    map_loss(sharded, mine).backward()
    for block in plain.ordered_blocks:
        fully_shard(block, mp_policy=BF16)
    fully_shard(plain, mp_policy=BF16)
    optimizer, losses = torch.optim.AdamW(plain.parameters(), lr=1e-3), []
    for _ in range(3):
        losses.append(map_loss(plain, mine))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return dict(
        float32=frequency_gradients(float32),
        mixed=frequency_gradients(mixed),
        sharded=frequency_gradients(sharded),
        plain_losses=[loss.item() for loss in losses],
    )


def small_backbone(name: str) -> Backbone:
    """With large projections: the gradients of frequencies need scores that differ."""
    torch.manual_seed(0)
    backbone = MODELS.build(BACKBONES[name])
    for block in backbone.ordered_blocks:
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
    return backbone.train()


def map_loss(backbone: Backbone, images: Tensor) -> Tensor:
    """A random weighting of all maps."""
    generator = torch.Generator().manual_seed(2)
    maps = [x.float() for x in backbone(images)]
    return sum((x * torch.randn(x.shape[1:], generator=generator)).mean() for x in maps)


def frequency_gradients(backbone: Backbone) -> list[Tensor]:
    """Of each block, put together from all processes."""
    params = backbone.named_parameters()
    return [whole(param.grad) for name, param in params if name.endswith('rope.freqs')]


# Layer-wise decay and roles make many groups; every gradient is clipped.
OPTIM_WRAPPER = dict(
    type='OptimWrapper',
    optimizer=dict(
        type='AdamW', lr=50.0, weight_decay=1e-3, eps=1.0
    ),  # eps: scale matters
    clip_grad=dict(max_norm=0.005, norm_type=2),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(layer_decay=0.75, no_decay=['one_dim', 'position', 'frequency']),
)


def trained_copies(rank: int, folder: Path) -> dict:
    """Losses of three steps with DDP, and the weights after them; a checkpoint after the second."""
    model = MMDistributedDataParallel(vit_upernet(), broadcast_buffers=False)
    wrapper = build_optim_wrapper(model.module, deepcopy(OPTIM_WRAPPER))
    losses = [update(model, model.module, wrapper, rank) for _ in range(2)]
    if rank == 0:
        weights = model.module.state_dict()
        checkpoint = dict(meta=META, state_dict=weights, optimizer=wrapper.state_dict())
        torch.save(checkpoint, folder / 'copies.pth')
    losses.append(update(model, model.module, wrapper, rank))
    return dict(losses=losses, weights=model.module.state_dict())


META = dict(iter=2, epoch=0)
BUILT = dict(init_weights_for_test_or_val=False)  # the model has its weights


def trained_in_shards(rank: int, folder: Path) -> dict:
    """The same with FSDP: losses of two steps, and those of the third by models that resume from
    the checkpoint of the first one, and from that of DDP."""
    strategy, model, wrapper = prepare_shards(folder)
    losses = [update(model, model, wrapper, rank) for _ in range(2)]
    strategy.save_checkpoint(
        str(folder / 'shards.pth'), extra_ckpt=dict(meta=dict(META))
    )
    distributed.barrier()
    weights = []
    for name in ('shards', 'copies'):
        strategy, model, wrapper = prepare_shards(folder)
        strategy.resume(str(folder / f'{name}.pth'))
        losses.append(update(model, model, wrapper, rank))
        weights.append(strategy.model_state_dict())
    units = sum(isinstance(module, FSDPModule) for module in model.modules())
    groups = {
        group['name']: len(group['params']) for group in wrapper.optimizer.param_groups
    }
    return dict(losses=losses, weights=weights, units=units, groups=groups)


def prepare_shards(folder: Path) -> tuple[BlockFSDPStrategy, nn.Module, OptimWrapper]:
    strategy = BlockFSDPStrategy(work_dir=str(folder))
    model, wrapper = strategy.prepare(
        vit_upernet(), optim_wrapper=deepcopy(OPTIM_WRAPPER)
    )
    return strategy, model, wrapper


def update(
    model: nn.Module, bare_model: nn.Module, wrapper: OptimWrapper, rank: int
) -> float:
    loss, _ = bare_model.parse_losses(
        model(*half_of(segmentation_batch(), rank), mode='loss')
    )
    wrapper.update_params(loss)
    return loss.item()


def half_of(batch: Batch, rank: int) -> Batch:
    images, samples = batch
    return images[2 * rank : 2 * rank + 2], samples[2 * rank : 2 * rank + 2]
