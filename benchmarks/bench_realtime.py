"""Latency of DEIMv2-S: ours, as it is and deployed, against transformers' model.

From images on the device to the outputs of the last layer (ours: to the best detections), in half
precision, eager and as a CUDA graph. Weights are random, which changes no time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from bench_compile import captured
from measure import Case, Clock, Row, Run, name_of, summary, time_rounds
from peers import Builder
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model

CONFIG = 'deim/deimv2-s_vit-t_4xb8-488k_coco'
CONFIGS = Path(__file__).parents[1] / 'configs'


def bench_realtime(
    device: torch.device,
    *,
    batch: int,
    dtype: torch.dtype,
    side: int = 640,
    rounds: int = 100,
) -> list[Row]:
    """Rows with median_ms, p20_ms to p99_ms, for each model and way to run it."""
    image = torch.randn(batch, 3, side, side, device=device, dtype=dtype)
    common = dict(
        bench='real time', mode='forward', batch=batch, height=side, width=side
    )
    common |= dict(work=f'{side} px', dtype=name_of(dtype))
    cases, rows = [], []
    for name, build in models().items():
        try:
            forward = prepared(build(), image)
            cases.append(Case(name, partial(ready, forward)))
            name += ', graph'
            cases.append(Case(name, partial(ready, captured(forward)[0])))
        except (
            ImportError,
            RuntimeError,
        ) as error:  # of a graph: the model waits for the GPU
            reason = f'{type(error).__name__}: {error}'.partition('\n')[0]
            rows.append(common | dict(implementation=name, left_out=reason))
    times = time_rounds(cases, Clock(device), rounds=rounds, warmup=3)
    for row, seconds in zip(
        summary([case.name for case in cases], times), times, strict=True
    ):
        p99 = torch.tensor(seconds, dtype=torch.float64).quantile(0.99).item()
        row |= dict(p99_ms=1000 * p99, images_per_s=1000 * batch / row['median_ms'])
        rows.append(common | row)
    return rows


def ready(run: Run) -> Run:
    return run


def models() -> dict[str, Builder]:
    return {
        'transformers': transformers_deim,
        'rope_dense': partial(ours, deploy=False),
        'rope_dense, deployed': partial(ours, deploy=True),
    }


def prepared(model: nn.Module, image: Tensor) -> Callable[[], object]:
    """A prediction of the model in the precision of the image."""
    model = model.to(image.device, image.dtype).eval()

    @torch.no_grad()
    def forward() -> object:
        return model(image)

    return forward


def ours(deploy: bool) -> nn.Module:
    model = random_model(load_config(str(CONFIGS / f'{CONFIG}.py')))
    return model.deploy() if deploy else model


@cache
def transformers_deim() -> nn.Module:
    """The same sizes by transformers' names; published configs have them."""
    import transformers

    vit = transformers.DINOv3ViTConfig(
        hidden_size=192,
        num_hidden_layers=12,
        num_attention_heads=3,
        intermediate_size=768,
        num_register_tokens=0,
        key_bias=True,
        out_features=['stage4', 'stage8', 'stage12'],
        reshape_hidden_states=True,
        apply_layernorm=False,
    )
    config = transformers.Deimv2Config(
        backbone_config=vit,
        encoder_has_trailing_conv=False,
        encoder_hidden_dim=192,
        encoder_in_channels=[192] * 3,
        encoder_ffn_dim=512,
        hidden_expansion=0.34,
        depth_mult=0.67,
        spatial_tuning_adapter_inplanes=16,
        d_model=192,
        decoder_in_channels=[192] * 3,
        decoder_ffn_dim=512,
        decoder_layers=4,
        decoder_n_points=[3, 6, 3],
        num_queries=300,
        num_labels=80,
        anchor_image_size=None,
    )
    return transformers.Deimv2ForObjectDetection(config)
