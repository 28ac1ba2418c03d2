"""Plain vision transformer with rotary position embedding, for dense prediction.

Letters: B images, H x W token grid, N tokens, R of them prefix tokens, C channels.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, get_args

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..rope import RopeScaling
from ..utils.memo import is_tracing
from ..utils.sizes import Size
from ..utils.validation import (
    check_choice,
    checked_indexes,
    checked_integer,
    checked_number,
)
from .archs import DEFAULT, VIT_ARCHS, ViTArch, find_arch
from .base import (
    Backbone,
    FrozenStages,
    OutputPrefix,
    WindowPrefix,
    checked_frozen_stages,
)
from .block import Block, recompute
from .from_config import build_blocks, build_sine_embed, build_stem
from .layers import (
    build_norm,
    init_transformer,
    resize_aligned,
    resize_grid,
    tile_grid,
    to_map,
)
from .windows import WindowPlan, fitting_side, window_plan

# The attribute of a batch of images with their metres a pixel, [B].
GROUND = 'ground_distances'
# Learned position embeddings over the grid of an image.
ADAPTED = {True: resize_grid, 'bilinear': resize_aligned, 'tile': tile_grid}


@MODELS.register_module()
class RoPEViT(Backbone):
    """ViT of Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024).

    Also its baselines, and other ViTs with rotary embedding: DINOv3, LingBot-Vision, EVA-02,
    Perception Encoder, SAM3's image encoder, V-JEPA 2.1, Sapiens2, timm's, and towers of multimodal
    models; and ResFormer and the plain ViT of the neighbourhood-attention papers, which have none.

    Takes images [B, in_channels, height, width] of any size from one patch up and returns one map
    [B, C, height // patch_size, width // patch_size] for each of ``out_indices``; see also
    ``output_prefix``. Published weights of all these load, see docs/checkpoints.md. Checked in
    test_vit.py and test_vit_families.py: against timm's independent ports with the same
    random weights, and windowed and relative-position blocks against tests/helpers/reference.py.

    Args:
        arch: a name in ``ARCHS`` ('tiny', 'small', 'base' and 'large': the paper's), or a
            dict of embed_dims, depth, num_heads and any other attribute of ``ViTArch``.
        in_channels: image channels.
        rope_scaling: for grids larger than in training, see ``RopeScaling``; ``grid`` is the one of
            ``img_size``, of the pre-training, unless it is given. None leaves the frequencies as
            they are, as in the paper. The factor of windows always comes from their size and
            ``img_size``.
        ground_distance: metres on the ground of a pixel in training, for positions in metres: each
            image then has a distance of its own, and positions are multiplied by it over this one
            (Feng et al., "GeoRoPE", 2026). Coordinates that cover the same range on every grid are
            then as of ``img_size``; none are augmented. See docs/large_images.md. None:
            positions in patches.
        mask_padding: exclude the padding of windows from attention. False as in detectron2's
            ViTDet.
        window_prefix: what prefix tokens do in window blocks. 'copy' gives each window a copy of
            them; the next global block, and an output, gets the mean of the copies. A window is
            then like an image of pre-training, with prefix tokens and coordinates of its own, and a
            global block has the tokens that it was trained with. That is the default: DINOv3's
            detector cuts images into such windows, and RF-DETR does so with DINOv2, where global
            blocks have all copies instead of their mean. 'global' lets them attend to all tokens,
            and tokens of the grid to their window and to them: a global block with a mask, with
            the coordinates of the whole grid and no padding.
        out_indices: blocks whose outputs are returned; negative ones count from the end.
        output_prefix: None returns maps, 'cls' pairs (map, class token [B, C]) as mmseg's ViT does
            for its DPTHead, 'all' pairs (map, prefix tokens [B, R, C]), class token first.
        drop_path_rate: stochastic depth of the last block; grows linearly from 0 at the first.
        frozen_stages: -1 trains everything, 0 freezes the patch and position embeddings, n also the
            first n blocks with their frequencies, 'all' everything, with the final norm. What is
            frozen stays in evaluation mode: no drop path, no augmentation of coordinates.
        lora: low-rank adapters of linear layers in all blocks, a dict of rank, alpha and targets,
            see ``lora.add_adapters``. All else is frozen then; ``frozen_stages`` still decides what
            stays in evaluation mode.
        with_cp: recompute each block in backward to save memory.
        init_cfg: mmengine initialisation, such as ``dict(type='Pretrained', checkpoint=...)``.
        pretrained: checkpoint to use without ``init_cfg``; set by mmseg's segmentors.
        settings: attributes of ``ViTArch`` that replace those in ``arch``, such as ``rope``,
            ``attention``, ``window_size`` or ``img_size``; 'default' leaves one as ``arch`` has it.

    Raises:
        ValueError: arguments that do not fit each other, named in the message.
    """

    ARCHS = VIT_ARCHS
    is_isotropic: ClassVar[bool] = True
    blocks: Sequence[Block]
    cls_token: nn.Parameter | None
    reg_token: nn.Parameter | None
    pos_embed: nn.Parameter | None

    def __init__(
        self,
        arch: str | dict = 'base',
        *,
        in_channels: int = 3,
        rope_scaling: dict | None = None,
        ground_distance: float | None = None,
        mask_padding: bool = False,
        window_prefix: WindowPrefix = 'copy',
        out_indices: Sequence[int] = (-1,),
        output_prefix: OutputPrefix = None,
        drop_path_rate: float = 0.0,
        frozen_stages: FrozenStages = -1,
        lora: dict | None = None,
        with_cp: bool = False,
        init_cfg: dict | None = None,
        pretrained: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(init_cfg, pretrained)
        self.arch = vit_arch = find_arch(ViTArch, self.ARCHS, arch, settings)
        channels = vit_arch.embed_dims
        depth = vit_arch.depth
        norm_cfg = vit_arch.norm_cfg
        window_block_indexes = vit_arch.window_block_indexes
        self.window_blocks = checked_indexes(
            'window_block_indexes', window_block_indexes, depth
        )
        self.out_indices = checked_indexes('out_indices', out_indices, depth)
        self.frozen_stages = checked_frozen_stages(frozen_stages, depth)
        checked_number('drop_path_rate', drop_path_rate, 0, below=1)
        check_choice('window_prefix', window_prefix, get_args(WindowPrefix))
        check_choice('output_prefix', output_prefix, (None, 'cls', 'all'))
        check_choice('mask_padding', mask_padding, (True, False))
        if output_prefix == 'cls' and not vit_arch.with_cls_token:
            raise ValueError("output_prefix='cls' needs with_cls_token=True")
        if output_prefix == 'all' and not vit_arch.num_prefix_tokens:
            raise ValueError(
                "output_prefix='all' needs with_cls_token=True or num_registers"
            )
        self.mask_padding = mask_padding
        self.with_cp = with_cp
        self.output_prefix = output_prefix
        self.num_prefix_tokens = vit_arch.num_prefix_tokens
        self.final_norm, self.window_prefix = vit_arch.final_norm, window_prefix
        self.global_prefix = (
            window_prefix == 'global' and vit_arch.num_prefix_tokens > 0
        )
        self.pretrain_grid = vit_arch.grid
        if isinstance(arch, str):
            own_size = settings | dict(img_size=DEFAULT)
            self.published_grid = find_arch(ViTArch, self.ARCHS, arch, own_size).grid
        self.out_channels = [channels] * len(self.out_indices)
        self.out_strides = [vit_arch.patch_size] * len(self.out_indices)
        self.set_window_size(vit_arch.window_size)

        # Of each block, whether prefix tokens are copied into windows before it, and whether the
        # mean of the copies replaces them after it: windows keep theirs between two window blocks.
        windowed = [index in self.window_blocks for index in range(-1, depth + 1)]
        steps = zip(windowed, windowed[1:], windowed[2:], strict=False)
        self.prefix_copies = [
            (now and not before, now and not after) for before, now, after in steps
        ]

        checked_integer('in_channels', in_channels, 1)
        self.patch_embed = build_stem(vit_arch, in_channels)
        rows, columns = vit_arch.grid
        embeddings = {  # tokens of each
            'cls_token': int(vit_arch.with_cls_token),
            'reg_token': vit_arch.num_registers,
            'pos_embed': rows * columns if vit_arch.learned_ape else 0,
        }
        for name, number in embeddings.items():
            values = torch.zeros(1, number, channels)
            self.register_parameter(name, nn.Parameter(values) if number else None)
        self.sine_embed = build_sine_embed(vit_arch)
        self.norm_pre: nn.Module = nn.Identity()
        if vit_arch.pre_norm:
            self.norm_pre = build_norm(norm_cfg, channels)
        self.blocks = build_blocks(
            vit_arch, self.window_blocks, self.global_prefix, drop_path_rate
        )
        self.add_norms(vit_arch)
        self.set_rope_scaling(rope_scaling)
        self.ground_distance = ground_distance
        if ground_distance is not None:
            checked_number('ground_distance', ground_distance, above=0)
            if self.window_blocks or vit_arch.rope is None:
                raise ValueError(
                    'ground_distance needs a rope and global attention: leave '
                    'window_block_indexes out'
                )
            self.place_on_ground(torch.ones(1), 1.0)
        self.apply(init_transformer)
        for embedding in (self.cls_token, self.reg_token, self.pos_embed):
            if embedding is not None:
                nn.init.normal_(embedding, std=0.02)
        self.freeze()
        self.add_lora(lora)

    def add_norms(self, arch: ViTArch) -> None:
        """Add the norms of the outputs: ``norm``, and of 'separate' ones ``norm{i}``."""
        last, kind = arch.depth - 1, arch.final_norm
        is_needed = last in self.out_indices if kind == 'separate' else kind
        self.norm = build_norm(arch.norm_cfg, arch.embed_dims) if is_needed else None
        self.out_norms: dict[int, str | None] = {}  # of each output
        for index in self.out_indices:
            name = 'norm' if kind == 'all' or (kind and index == last) else None
            if kind == 'separate' and index != last:
                name = f'norm{index}'
                self.add_module(name, build_norm(arch.norm_cfg, arch.embed_dims))
            self.out_norms[index] = name

    def forward(
        self, image: Tensor
    ) -> tuple[Tensor, ...] | tuple[tuple[Tensor, Tensor], ...]:
        tokens, grid = self.forward_tokens(image)
        for x in tokens:
            if x.requires_grad and not is_tracing():
                # Else the layout of the gradient of a map would go through all blocks.
                x.register_hook(Tensor.contiguous)
        number = self.num_prefix_tokens
        maps = tuple(to_map(x[:, number:], grid) for x in tokens)
        if self.output_prefix is None:
            return maps
        prefix = 0 if self.output_prefix == 'cls' else slice(number)
        return tuple((out, x[:, prefix]) for out, x in zip(maps, tokens, strict=True))

    def forward_tokens(self, image: Tensor) -> tuple[list[Tensor], Size]:
        """Return the tokens [B, N, C] after each of ``out_indices``, and the grid (H, W).

        Prefix tokens come first. Tokens are normalised as ``final_norm`` says.
        """
        tokens, grid = self.block_tokens(image, self.out_indices)
        outs = []
        for x, name in zip(tokens, self.out_norms.values(), strict=True):
            outs.append(x if name is None else self.get_submodule(name)(x))
        return outs, grid

    def block_tokens(
        self, image: Tensor, indices: Sequence[int]
    ) -> tuple[list[Tensor], Size]:
        """Return the tokens [B, N, C] after some blocks, not normalised, and the grid (H, W).

        Args:
            image: [B, in_channels, height, width].
            indices: of the blocks, in order; -1 for the tokens before the first. Blocks after the
                last of them do not run.
        """
        if self.ground_distance is not None:
            self.place_on_ground(getattr(image, GROUND, None), self.ground_distance)
        x, grid = self.embed(image)  # [B, N, C]
        plan = None
        if self.window_blocks:
            plan = self.plan_windows(x.shape[0], grid, x.device)
        outs = [x] if -1 in indices else []
        copies = self.prefix_copies[: max(indices) + 1]
        for index, (copies_before, mean_after) in enumerate(copies):
            block = self.blocks[index]
            windows = plan if index in self.window_blocks else None
            if windows is not None and copies_before:
                x = windows.copy_prefix(x)
            inputs = (x, grid, windows)
            x = recompute(block, *inputs) if self.with_cp else block(*inputs)
            out = x
            if windows is not None and (mean_after or index in indices):
                out = windows.mean_prefix(x)
            if index in indices:
                outs.append(out)
            x = out if mean_after else x
        return outs, grid

    def place_on_ground(self, distances: Tensor | None, trained: float) -> None:
        """Give positions the ground distances [B] of the images of a batch, metres a pixel."""
        if distances is None:
            raise ValueError(
                f'ground_distance={trained}: these images have none of their own (an exported or '
                'traced model, crops of a sliding window, or a pipeline without GroundDistance '
                'and Channel...DataPreprocessor, see docs/large_images.md)'
            )
        for block in self.blocks:
            if block.attn.rope is not None:
                block.attn.rope.set_ground(distances / trained, self.pretrain_grid)

    def embed(self, image: Tensor) -> tuple[Tensor, Size]:
        """Make tokens [B, N, C] before the first block, and the grid (H, W)."""
        x, grid = self.patch_embed(image)  # [B, H W, C]
        if self.pos_embed is not None:
            x = x + ADAPTED[self.arch.use_ape](self.pos_embed, self.pretrain_grid, grid)
        if self.sine_embed is not None:
            x = x + self.sine_embed(grid, x.device).to(x.dtype)
        prefix = []
        for token in (self.cls_token, self.reg_token):
            if token is not None:
                prefix.append(token.expand(x.shape[0], -1, -1))
        if prefix:
            x = torch.cat([*prefix, x], 1)
        return self.norm_pre(x), grid

    def plan_windows(
        self, batch: int, grid: Size, device: torch.device
    ) -> WindowPlan | None:
        """The windows of the window blocks; None if they are the whole grid."""
        if self.window_size is None or not self.window_blocks:
            return None
        window_size = self.window_size
        if window_size == 'auto':
            height, width = map(fitting_side, grid, self.pretrain_grid)
            window_size = height, width
        number = self.num_prefix_tokens
        return window_plan(
            batch,
            grid,
            window_size,
            mask_padding=self.mask_padding or self.global_prefix,
            num_copies=0 if self.global_prefix else number,
            num_shared=number if self.global_prefix else 0,
            device=device,
        )

    @property
    def ordered_blocks(self) -> list[Block]:
        return list(self.blocks)

    def map_sizes(self, height: int, width: int) -> list[Size]:
        return [self.patch_embed.grid(height, width)] * len(self.out_indices)

    def position_tables(self) -> dict[str, Size]:
        resized = (
            self.pos_embed is not None and ADAPTED[self.arch.use_ape] is resize_grid
        )
        tables = {'pos_embed': self.pretrain_grid} if resized else {}
        return super().position_tables() | tables

    def layer_of(self, name: str) -> int:
        first, *rest = name.split('.')
        if first == 'blocks':
            return int(rest[0]) + 1
        return len(self.blocks) + 1 if is_norm(first) else 0

    def scaling_of(self, block: int, scaling: RopeScaling | None) -> RopeScaling | None:
        """Return the scaling of a block.

        Windows have no fixed factor: it comes from their size, unless coordinates are global.
        """
        windowed = block in self.window_blocks and self.window_size is not None
        if scaling is None or not windowed or self.global_prefix:
            return scaling
        return replace(scaling, factor=None, grid=self.pretrain_grid)

    def frozen_modules(self) -> list[nn.Module | nn.Parameter | None]:
        if self.frozen_stages < 0:
            return []
        prefix = [self.cls_token, self.reg_token, self.pos_embed, self.sine_embed]
        all_blocks = self.frozen_stages == len(self.blocks)
        return [
            self.patch_embed,
            *prefix,
            self.norm_pre,
            *self.blocks[: self.frozen_stages],
            *(
                child
                for name, child in self.named_children()
                if all_blocks and is_norm(name)
            ),
        ]


def is_norm(name: str) -> bool:
    """Return whether a part of a model is the norm of an output."""
    return re.fullmatch(r'norm\d*', name) is not None
