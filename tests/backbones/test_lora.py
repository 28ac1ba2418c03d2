"""Low-rank adapters: what they compute, what trains, and their files."""

import copy
import io
import json
import pickle
from pathlib import Path

import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.model import BaseModel
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers.pairwise import pairwise
from helpers.published import meta_dinov3
from helpers.reference import relative_error
from helpers.small_checkpoints import load, refusal, saved
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.base import Backbone
from rope_dense.backbones.lora import LoRA, find_adapters
from rope_dense.checkpoints import CheckpointError, load_adapters, save_adapters

RANK, ALPHA = 2, 6.0
MLP = dict(rank=RANK, alpha=ALPHA, targets=('qkv', 'proj', 'fc1', 'fc2'))
ARCH = dict(embed_dims=16, depth=3, num_heads=2)


def vit(**options: object) -> RoPEViT:
    """With windows of five prefix tokens and of 3 x 3 others."""
    windows = dict(window_size=3, window_block_indexes=(0, 2), num_registers=4)
    return RoPEViT(ARCH, patch_size=8, **windows | options)


def swin(**options: object) -> RoPESwin:
    arch = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
    return RoPESwin(
        arch, window_size=4, out_indices=(0, 1), drop_path_rate=0.0, **options
    )


BUILDERS = {
    'vit': vit,
    'vit with biases of q and v': lambda **options: vit(qkv_bias='qv', **options),
    'vit with a global prefix': lambda **options: vit(
        window_prefix='global', **options
    ),
    'swin': swin,
}
every_model = pytest.mark.parametrize('build', BUILDERS.values(), ids=BUILDERS)


def trained(model: Backbone) -> Backbone:
    """Weights and adapters as after training: far from zero."""
    for name, parameter in model.named_parameters():
        if not name.endswith('freqs'):
            nn.init.normal_(parameter, std=0.3)
    return model


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies, without those of adapters."""
    return {
        key: x.clone() for key, x in model.state_dict().items() if '.lora.' not in key
    }


def images(*size: int) -> Tensor:
    return torch.randn(2, 3, *(size or (40, 56)))


def loss_of(model: nn.Module, image: Tensor) -> Tensor:
    return sum(out.square().mean() for out in model(image))


# ---------------------------------------------------------------- what they compute


@every_model
def test_new_adapters_change_nothing(build):
    plain, model = build().eval(), build(lora=MLP).eval()
    model.load_state_dict({**model.state_dict(), **plain.state_dict()})
    image = images()
    assert all(
        torch.equal(a, b) for a, b in zip(model(image), plain(image), strict=True)
    )
    assert all(
        adapter.down.abs().min() > 0 for adapter in find_adapters(model).values()
    )


@every_model
@torch.no_grad()
def test_a_layer_has_the_weight_of_the_paper_s_formula(build):
    """W + alpha / rank * up @ down, in float64; after ``merge_lora`` too, by a plain model."""
    model, plain = trained(build(lora=MLP)).double().eval(), build().double().eval()
    weights = weights_of(model)
    for key in weights:
        name, _, leaf = key.rpartition('.')
        if (
            leaf == 'weight'
            and name.split('.')[-1] in MLP['targets']
            and 'patch' not in name
        ):
            adapter = model.get_submodule(f'{name}.lora')
            weights[key] += (
                ALPHA / RANK * torch.einsum('or,ri->oi', adapter.up, adapter.down)
            )
    plain.load_state_dict(weights)
    image = images().double()
    expected, before = plain(image), build().double().eval()
    before.load_state_dict(weights_of(model))
    for found, wanted, without in zip(
        model(image), expected, before(image), strict=True
    ):
        assert (
            relative_error(found, wanted)
            < 1e-10
            < 1e-2
            < relative_error(without, wanted)
        )
    model.merge_lora()
    assert model.lora is None and model.state_dict().keys() == plain.state_dict().keys()
    assert not any(part._forward_hooks for part in model.modules())
    for found, wanted in zip(model(image), expected, strict=True):
        assert relative_error(found, wanted) < 1e-10


def test_numbers_of_parameters():
    model, lora = vit(), vit(lora=dict(rank=4))
    extra = sum(p.numel() for p in lora.parameters() if p.requires_grad)
    assert extra == 3 * 4 * ((16 + 48) + (16 + 16))  # qkv and proj of three blocks
    assert sum(p.numel() for p in lora.parameters()) == extra + sum(
        p.numel() for p in model.parameters()
    )
    assert lora.lora == dict(rank=4, alpha=16.0, targets=['qkv', 'proj'])


@every_model
@torch.no_grad()
def test_copies_have_adapters_of_their_own(build):
    """Of deepcopy, pickle and torch.save, after a forward: merging one leaves the others."""
    model, image, file = trained(build(lora=MLP)).eval(), images(), io.BytesIO()
    expected = model(image)
    torch.save(model, file)
    file.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    copies.append(torch.load(file, weights_only=False))
    for other in copies:
        assert all(
            torch.equal(a, b) for a, b in zip(other(image), expected, strict=True)
        )
        other.merge_lora()
        outs = zip(other(image), expected, strict=True)
        assert all(relative_error(a, b) < 1e-5 for a, b in outs)
        assert not find_adapters(other)
    assert all(torch.equal(a, b) for a, b in zip(model(image), expected, strict=True))


@pytest.mark.slow
@torch.no_grad()
def test_adapters_are_compiled_and_exported():
    model, image = trained(vit(lora=MLP)).eval(), images()
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    for forward in (compiled, torch.export.export(model, (image,)).module()):
        outs = zip(forward(image), model(image), strict=True)
        assert all(relative_error(a, b) < 1e-5 for a, b in outs)


# ---------------------------------------------------------------- what trains


@pairwise(build=BUILDERS, frozen_stages=[-1, 1, 'all'], with_cp=[False, True])
def test_adapters_alone_train(build, with_cp: bool, frozen_stages: int | str):
    model = trained(
        build(lora=MLP, with_cp=with_cp, frozen_stages=frozen_stages)
    ).train()
    before = weights_of(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        losses.append(loss_of(model, torch.ones(1, 3, 40, 40)))
        losses[-1].backward()
        optimizer.step()
    after = weights_of(model)
    assert all(torch.equal(after[key], before[key]) for key in before)
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None and parameter.grad.any()) == (
            '.lora.' in name
        ), name
    assert losses[-1] < losses[0]


def test_what_frozen_stages_names_stays_in_evaluation_mode():
    rope = dict(type='MixedRoPE', coordinates=dict(shift=0.5))
    options = dict(rope=rope, lora=dict(rank=2), drop_path_rate=0.5)
    model, image = vit(frozen_stages='all', **options).train(), images()
    assert not any(block.training for block in model.blocks)
    assert torch.equal(model(image)[0], model(image)[0])
    model = vit(**options).train()
    assert not torch.equal(model(image)[0], model(image)[0])


def test_a_built_model_gets_adapters_once():
    model = vit()
    model.add_lora(dict(rank=2, targets=['proj']))
    assert {name.split('.')[-1] for name in find_adapters(model)} == {'proj'}
    with pytest.raises(
        ValueError, match=r'the model has adapters already.*merge_lora first'
    ):
        model.add_lora(dict(rank=2))
    model.merge_lora()
    model.add_lora(dict(rank=3))
    assert len(find_adapters(model)) == 6


@pytest.mark.parametrize(
    'lora, message',
    [
        (4, 'lora must be a dict or None, got 4'),
        (dict(r=4), r"lora has \['r'\], allowed are \['rank', 'alpha', 'targets'\]"),
        (dict(rank=0), 'lora: rank must be an integer from 1 up, got 0'),
        (dict(alpha=0), 'lora: alpha must be a finite number, more than 0, got 0'),
        (
            dict(targets='qkv'),
            "lora: targets must be one or more of the linear layers .*'fc2'",
        ),
        (dict(targets=()), r'lora: targets must be one or more .* got \(\)'),
        (
            dict(targets=('q',)),
            r"one or more of .*\['qkv', 'proj', 'fc1', 'fc2'\], got \('q',\)",
        ),
    ],
)
@pytest.mark.parametrize('build', [vit, swin])
def test_settings_that_are_not_allowed_are_named(build, lora: object, message: str):
    with pytest.raises(ValueError, match=message):
        build(lora=lora)


# ---------------------------------------------------------------- checkpoints

DINOV3 = dict(
    arch=dict(RoPEViT.ARCHS['dinov3_small'], embed_dims=64, depth=2, num_heads=1)
)


def test_published_weights_load_as_without_adapters(tmp_path: Path):
    path = saved(meta_dinov3(64, 2, hidden=256), tmp_path)
    options = dict(DINOV3, qkv_bias='qv')
    model, plain = (load(RoPEViT, path, lora=lora, **options) for lora in (MLP, None))
    expected = plain.state_dict()
    assert all(torch.equal(x, expected[key]) for key, x in weights_of(model).items())
    image = images(32, 48)
    assert torch.equal(model.eval()(image)[0], plain.eval()(image)[0])
    assert all(
        p.requires_grad == ('.lora.' in name) for name, p in model.named_parameters()
    )


def test_weights_with_adapters_load_strictly(tmp_path: Path):
    model = trained(vit(lora=MLP))
    path = saved(
        {f'backbone.{key}': x for key, x in model.state_dict().items()}, tmp_path
    )
    options = dict(arch=ARCH, patch_size=8, num_registers=4)
    other = load(RoPEViT, path, lora=MLP, **options)
    assert all(
        torch.equal(x, other.state_dict()[key]) for key, x in model.state_dict().items()
    )
    text = refusal(RoPEViT, path, **options)
    assert 'left over: blocks.*.attn.qkv.lora.down (3 times)' in text
    text = refusal(RoPEViT, path, lora=dict(MLP, rank=3), **options)
    assert 'blocks.*.attn.qkv.lora.down [2, 16] instead of [3, 16] (3 times)' in text


@every_model
def test_a_file_of_adapters_alone(build, tmp_path: Path):
    model, path = (
        trained(build(lora=MLP)).eval(),
        str(tmp_path / 'adapters.safetensors'),
    )
    save_adapters(model, path)
    numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (
        4 * numbers
        < Path(path).stat().st_size
        < 4 * numbers + 200 * len(model.state_dict())
    )
    assert [file.name for file in tmp_path.iterdir()] == ['adapters.safetensors']
    other = build(lora=MLP).eval()
    base = weights_of(model)
    other.load_state_dict(base, strict=False)
    load_adapters(other, path)
    image = images()
    assert all(
        torch.equal(a, b) for a, b in zip(other(image), model(image), strict=True)
    )


def rewritten(path: str, change) -> str:
    """The file with other weights: ``change`` edits them in place."""
    with safe_open(path, 'pt') as file:
        weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    change(weights)
    save_file(weights, path, metadata)
    return path


KEY = 'blocks.1.attn.proj.lora.up'


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda weights: weights.pop(KEY), f'missing: {KEY}'),
        (lambda weights: weights.update(extra=torch.ones(1)), 'left over: extra'),
        (
            lambda weights: weights.update({KEY: torch.ones(16, 3)}),
            rf'of another shape: {KEY} \[16, 3\] instead of \[16, 2\]',
        ),
    ],
)
def test_files_of_adapters_load_strictly(change, message: str, tmp_path: Path):
    path = str(tmp_path / 'adapters.safetensors')
    save_adapters(trained(vit(lora=MLP)), path)
    model = vit(lora=MLP)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match=message):
        load_adapters(model, rewritten(path, change))
    assert all(torch.equal(x, before[key]) for key, x in model.state_dict().items())


def test_settings_of_the_file_and_the_model_must_agree(tmp_path: Path):
    path = str(tmp_path / 'adapters.safetensors')
    save_adapters(vit(lora=MLP), path)
    for lora in (None, dict(MLP, alpha=8.0), dict(MLP, targets=('qkv',))):
        model = vit(lora=lora)
        with pytest.raises(
            CheckpointError, match=r"set lora=.*'alpha': 6.0.*, the model has "
        ):
            load_adapters(model, path)
    with pytest.raises(CheckpointError, match='no file of adapters'):
        load_adapters(vit(lora=MLP), saved(vit(lora=MLP).state_dict(), tmp_path))
    with pytest.raises(CheckpointError, match='no such file'):
        load_adapters(vit(lora=MLP), str(tmp_path / 'other.safetensors'))
    with pytest.raises(
        CheckpointError, match='no adapters to save; build it with lora'
    ):
        save_adapters(vit(), path)
    with safe_open(path, 'pt') as file:
        assert json.loads(file.metadata()['lora']) == dict(
            MLP, targets=list(MLP['targets'])
        )


def test_an_interrupted_write_leaves_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / 'adapters.safetensors'
    save_adapters(vit(lora=MLP), str(path))
    before = path.read_bytes()

    def half(weights: dict, partial: str, metadata: dict) -> None:
        Path(partial).write_bytes(before[:100])
        raise OSError('no space left')

    monkeypatch.setattr('safetensors.torch.save_file', half)
    with pytest.raises(OSError, match='no space left'):
        save_adapters(vit(lora=dict(rank=1)), str(path))
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


# ---------------------------------------------------------------- mmengine


@DATASETS.register_module()
class FourImages(BaseDataset):
    def load_data_list(self) -> list[dict]:
        generator = torch.Generator().manual_seed(0)
        return [
            dict(inputs=torch.randn(3, 32, 32, generator=generator)) for _ in range(4)
        ]


class Head(BaseModel):
    """A backbone with adapters, and a linear layer that trains too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head = vit(lora=dict(rank=2)), nn.Linear(16, 4)

    def forward(
        self, inputs: list[Tensor], mode: str, **_: object
    ) -> dict[str, Tensor]:
        features = self.backbone(torch.stack(inputs))[0].mean((2, 3))
        return dict(loss=(self.head(features) - 1).square().mean())


def run(
    folder: Path, name: str, max_iters: int, resume: bool = False
) -> dict[str, Tensor]:
    """The weights after training."""
    runner = Runner(
        Head(),
        work_dir=str(folder),
        train_dataloader=dict(
            batch_size=4,
            sampler=dict(type='DefaultSampler', shuffle=False),
            dataset=dict(type='FourImages', serialize_data=False),
        ),
        train_cfg=dict(by_epoch=False, max_iters=max_iters),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01)),
        default_hooks=dict(
            checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=2)
        ),
        resume=resume,
        experiment_name=name,
    )
    runner.train()
    return runner.model.state_dict()


@pytest.mark.slow
def test_a_run_with_adapters_is_resumed(tmp_path: Path):
    expected = run(tmp_path / 'whole', f'{tmp_path.name}_whole', 4)
    run(tmp_path / 'part', f'{tmp_path.name}_part', 2)
    found = run(tmp_path / 'part', f'{tmp_path.name}_resumed', 4, resume=True)
    assert found.keys() == expected.keys()
    for key, x in expected.items():
        torch.testing.assert_close(found[key], x)
    start = Head().state_dict()
    changed = {key for key, x in expected.items() if not torch.equal(x, start[key])}
    trained_keys = {key for key in start if '.lora.' in key or key.startswith('head.')}
    assert changed == trained_keys
    file = torch.load(tmp_path / 'whole' / 'iter_4.pth', weights_only=False)
    assert file['state_dict'].keys() == expected.keys()


def test_an_adapter_shows_its_settings():
    assert repr(LoRA(nn.Linear(4, 6), 2, 6.0)) == 'LoRA(rank=2, scale=3)'
