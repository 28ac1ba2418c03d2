"""Published layouts into our backbones and back."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from helpers.published import SWIN_SIZES, VIT_SIZES, naver_swin, naver_vit
from helpers.reference import relative_error
from helpers.small_checkpoints import VIT, earlier, load, saved
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.load import read_weights
from rope_dense.checkpoints.publishers import LAYOUTS, TARGETS, find_layout
from rope_dense_command import command

# Of copying the real frequencies of a file into a model without storage.
pytestmark = pytest.mark.filterwarnings(
    'ignore:for .*freqs. copying from a non-meta parameter'
)

MIXED = dict(type='MixedRoPE', theta=10.0)
VIT_VARIANTS = {  # the published ones: what the file has, and the options that it needs
    'deit': (dict(mixed=False, ape=True), dict(rope=None, use_ape=True)),
    'axial': (
        dict(mixed=False, ape=False),
        dict(rope=dict(type='AxialRoPE', theta=100.0)),
    ),
    'mixed': (dict(mixed=True, ape=False), dict(rope=MIXED)),
    'axial_ape': (
        dict(mixed=False, ape=True),
        dict(rope=dict(type='AxialRoPE', theta=100.0), use_ape=True),
    ),
    'mixed_ape': (dict(mixed=True, ape=True), dict(rope=MIXED, use_ape=True)),
}
SWIN_VARIANTS = {
    'axial': dict(rope=dict(type='AxialRoPE', theta=50.0)),
    'mixed': dict(rope=MIXED),
    'rpb': dict(rope=None, attention=dict(type='TableBias')),
}
TIMM_VARIANTS = {
    '': 'axial',
    'mixed_': 'mixed',
    'ape_': 'axial_ape',
    'mixed_ape_': 'mixed_ape',
}


def every(sizes: Iterable[str], variants: Iterable[str]) -> list[tuple[str, str]]:
    """Every size in one variant, and every variant in one size."""
    pairs = itertools.product(sizes, variants)
    return [
        pair for pair in pairs if pair[0] == 'small' or pair[1] in ('mixed', 'mixed_')
    ]


def equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[k], second[k]) for k in first
    )


@pytest.mark.parametrize('size, variant', every(VIT_SIZES, VIT_VARIANTS))
def test_every_naver_vit_loads_strictly(size: str, variant: str, tmp_path: Path):
    layout, options = VIT_VARIANTS[variant]
    path = saved(
        {'model': naver_vit(*VIT_SIZES[size], device='meta', **layout)}, tmp_path
    )
    with torch.device('meta'):
        for extra in (dict(), dict(with_cls_token=False), dict(final_norm=True)):
            load(RoPEViT, path, arch=size, **options, **extra)


def test_learned_axial_frequencies_start_at_the_axial_weights(tmp_path: Path):
    path = saved(
        {'model': naver_vit(*VIT_SIZES['small'], mixed=False, ape=False)}, tmp_path
    )
    axial, learned = (
        load(
            RoPEViT,
            path,
            arch='small',
            rope=dict(type='AxialRoPE', theta=100.0, learned=learns),
        )
        for learns in (False, True)
    )
    assert equal(
        {
            key: value
            for key, value in learned.state_dict().items()
            if 'freqs' not in key
        },
        axial.state_dict(),
    )
    image = torch.randn(1, 3, 48, 80)
    torch.testing.assert_close(learned(image), axial(image))


@pytest.mark.parametrize('size, variant', every(SWIN_SIZES, SWIN_VARIANTS))
def test_every_naver_swin_loads_strictly(size: str, variant: str, tmp_path: Path):
    path = saved(
        {'model': naver_swin(*SWIN_SIZES[size], variant, device='meta')}, tmp_path
    )
    with torch.device('meta'):
        for out_indices in ((0, 1, 2, 3), (1, 2, 3)):
            load(
                RoPESwin,
                path,
                arch=size,
                out_indices=out_indices,
                **SWIN_VARIANTS[variant],
            )


def test_every_value_of_a_naver_vit_arrives(tmp_path: Path):
    weights = naver_vit(*VIT_SIZES['small'], mixed=True, ape=True)
    path = saved({'model': weights, 'epoch': 299}, tmp_path)
    model = load(RoPEViT, path, arch='small', use_ape=True, final_norm=True)
    for name, value in model.state_dict().items():
        if 'freqs' not in name:
            assert torch.equal(value, weights[name]), name
    for axis, block, head in itertools.product(range(2), range(12), range(6)):
        of_head = weights['freqs'][axis, block, 32 * head : 32 * head + 32]
        assert torch.equal(model.blocks[block].attn.rope.freqs[axis, head], of_head)


@pytest.mark.parametrize('variant', ['mixed', 'rpb'])
def test_every_value_of_a_naver_swin_arrives(variant: str, tmp_path: Path):
    weights = naver_swin(32, (2, 2, 18), (1, 2, 4), variant)
    keys = list(weights)
    random.shuffle(keys)  # safetensors files have block 10 before block 2
    path = saved({'model': {key: weights[key] for key in keys}}, tmp_path)
    arch = dict(embed_dims=32, depths=(2, 2, 18), num_heads=(1, 2, 4))
    options = dict(arch=arch, out_indices=(0, 1, 2), **SWIN_VARIANTS[variant])
    model = load(RoPESwin, path, **options)
    for name, value in model.state_dict().items():
        if name.startswith('norm'):
            assert (
                value == float(name.endswith('weight'))
            ).all()  # new, not the classifier's
        elif not name.endswith('rope.freqs'):
            assert torch.equal(value, weights[name]), name
    if variant == 'mixed':
        for stage, layer in enumerate(model.layers):
            for index, block in enumerate(layer.blocks):
                expected = weights[f'layers.{stage}.blocks.{index}.attn.rope_freqs']
                assert torch.equal(block.attn.rope.freqs, expected)


@pytest.mark.parametrize('size, variant', every(VIT_SIZES, TIMM_VARIANTS))
def test_every_timm_port_loads_strictly(
    timm: ModuleType, size: str, variant: str, tmp_path: Path
):
    with torch.device('meta'):
        weights = timm.create_model(
            f'vit_{size}_patch16_rope_{variant}224'
        ).state_dict()
    if 'rope.freqs' in weights:  # whose values are looked at
        weights['rope.freqs'] = torch.randn(weights['rope.freqs'].shape)
    path = saved(weights, tmp_path)
    with torch.device('meta'):
        load(RoPEViT, path, arch=size, **VIT_VARIANTS[TIMM_VARIANTS[variant]][1])


@pytest.mark.parametrize('variant', TIMM_VARIANTS)
@torch.no_grad()
def test_same_tokens_as_timm_through_a_file(
    timm: ModuleType, variant: str, tmp_path: Path
):
    theirs = timm.create_model(f'vit_small_patch16_rope_{variant}224').eval()
    for name, parameter in theirs.named_parameters():
        if 'freqs' not in name:
            parameter.add_(
                torch.randn_like(parameter), alpha=0.3 if parameter.dim() == 1 else 0.03
            )
    options = VIT_VARIANTS[TIMM_VARIANTS[variant]][1]
    path = saved(theirs.state_dict(), tmp_path)
    ours = load(RoPEViT, path, arch='small', final_norm=True, **options).eval()
    image = torch.randn(1, 3, 224, 224)
    expected = theirs.forward_features(image)[:, 1:].transpose(1, 2)
    assert relative_error(ours(image)[-1].flatten(2), expected) < 1e-5


MANY_BLOCKS = dict(
    embed_dims=64, depth=12, num_heads=2
)  # block 10 is before block 2 by name
EARLIER = {
    'mixed': (RoPEViT, dict(arch=MANY_BLOCKS)),
    'learned axial': (
        RoPEViT,
        dict(arch=MANY_BLOCKS, rope=dict(type='AxialRoPE', learned=True)),
    ),
    'qv biases': (RoPEViT, dict(arch=MANY_BLOCKS, qkv_bias='qv', rope=None)),
    'EVA-02': (
        RoPEViT,  # 65 tokens could be 8 x 8 and a place for the class token
        dict(
            arch=dict(RoPEViT.ARCHS['eva02_base'], **MANY_BLOCKS, patch_size=16),
            img_size=(80, 208),
        ),
    ),
    'PE': (
        RoPEViT,
        dict(
            arch=dict(RoPEViT.ARCHS['pe_core_base'], **MANY_BLOCKS), img_size=(80, 208)
        ),
    ),
    'Swin': (
        RoPESwin,
        dict(
            arch=dict(embed_dims=32, depths=(2, 12), num_heads=(1, 2)),
            out_indices=(0, 1),
        ),
    ),
}


@pytest.mark.parametrize('backbone, options', EARLIER.values(), ids=EARLIER)
def test_checkpoints_of_earlier_versions_load(
    backbone: type, options: dict, tmp_path: Path
):
    trained = backbone(**options)
    for parameter in trained.parameters():
        nn.init.normal_(parameter)
    weights = trained.state_dict()
    old = earlier(weights)
    for contents in (
        old,
        {'state_dict': {f'backbone.{key}': x for key, x in old.items()}},
    ):
        model = load(backbone, saved(contents, tmp_path), **options)
        assert equal(model.state_dict(), weights)


@pytest.mark.parametrize('variant', VIT_VARIANTS)
@pytest.mark.parametrize('target', ['naver', 'timm'])
def test_vit_there_and_back(target: str, variant: str):
    ours = RoPEViT(
        arch=dict(embed_dims=128, depth=3, num_heads=2), **VIT_VARIANTS[variant][1]
    )
    weights = ours.state_dict()
    theirs = TARGETS[target].from_ours(weights)
    assert ('freqs' in theirs) == (target == 'naver' and 'mixed' in variant)
    assert equal(find_layout(theirs, 'theirs').to_ours(theirs), weights)


def test_frequencies_that_do_not_make_one_tensor():
    weights = RoPEViT(arch=dict(embed_dims=64, depth=3, num_heads=1)).state_dict()
    freqs = 'blocks.1.attn.rope.freqs'
    without = {key: tensor for key, tensor in weights.items() if key != freqs}
    for target in ('naver', 'timm'):
        with pytest.raises(
            CheckpointError, match=r'has blocks\.\*\.attn\.rope\.freqs \(2 times\)$'
        ):
            TARGETS[target].from_ours(without)


@pytest.mark.parametrize('variant', SWIN_VARIANTS)
def test_swin_there_and_back(variant: str):
    arch = dict(embed_dims=32, depths=(2, 12), num_heads=(1, 2))
    weights = RoPESwin(
        arch=arch, out_indices=(0, 1), **SWIN_VARIANTS[variant]
    ).state_dict()
    theirs = TARGETS['naver'].from_ours(weights)
    assert ('layers.1.blocks.11.attn.rope_freqs' in theirs) == (variant == 'mixed')
    assert equal(find_layout(theirs, 'theirs').to_ours(theirs), weights)


@pytest.mark.parametrize(
    'weights',
    [
        naver_vit(64, 2, mixed=True, ape=True),
        naver_vit(64, 2, mixed=False, ape=True),
        naver_swin(32, (2, 2), (1, 2), 'mixed'),
        naver_swin(32, (2, 2), (1, 2), 'rpb'),
    ],
)
def test_conversions_do_not_change_what_they_are_given(weights: dict[str, Tensor]):
    before = {key: value.clone() for key, value in weights.items()}
    ours = find_layout(weights, 'published').to_ours(weights)
    assert equal(weights, before)
    before = {key: value.clone() for key, value in ours.items()}
    TARGETS['naver'].from_ours(ours)
    assert equal(ours, before)


def test_layouts_are_told_apart():
    def named(weights: dict[str, Tensor]) -> str:
        return find_layout(weights, 'x').name

    assert named(naver_vit(64, 1, mixed=True, ape=False)) == 'naver ViT'
    assert named(naver_vit(64, 1, mixed=False, ape=False)) == 'timm or naver ViT'
    for variant in ('mixed', 'axial'):
        assert named(naver_swin(32, (2,), (1,), variant)) == 'naver Swin'
    assert (
        named(naver_swin(32, (2,), (1,), 'rpb')) == 'Swin with relative position bias'
    )
    tiny = dict(embed_dims=64, depth=1, num_heads=1)
    assert named(RoPEViT(arch=tiny).state_dict()) == 'ours'
    assert named(RoPESwin().state_dict()) == 'ours'
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)


# ---------------------------------------------------------------- tools/convert_checkpoint.py


@pytest.fixture(scope='module')
def convert() -> Callable[[Sequence[str]], int]:
    return command('convert_checkpoint')


SMALL = dict(arch=dict(embed_dims=64, depth=2, num_heads=1))


@pytest.mark.parametrize(
    'target, wrapper', [('ours', 'state_dict'), ('naver', 'model')]
)
def test_tool_writes_what_loads_again(
    convert, target: str, wrapper: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    published = {'model': naver_vit(64, 2, mixed=True, ape=False)}
    source, destination = saved(published, tmp_path), tmp_path / 'new' / 'vit.pth'
    assert convert([source, str(destination), '--to', target, '--report']) == 0
    out = capsys.readouterr().out
    new = 'same' if target == 'naver' else 'blocks.*.attn.rope.freqs'
    assert f'freqs [2, 2, 32] -> {new}' in out and 'head.bias [1000] -> dropped' in out
    assert list(torch.load(destination)) == [wrapper]
    assert {path.name for path in destination.parent.iterdir()} == {
        '.rope_dense',
        'vit.pth',
    }
    first, second = (
        load(RoPEViT, str(path), **SMALL) for path in (source, destination)
    )
    assert equal(first.state_dict(), second.state_dict())


@pytest.mark.parametrize('out', ['source.pth', 'link.pth', 'mine.pth'])
def test_tool_replaces_nothing_of_the_users(
    convert, tmp_path: Path, capsys: pytest.CaptureFixture, out: str
):
    """Neither what it reads, which it does not read then, nor another file; but its own."""
    source = tmp_path / 'source.pth'
    source.write_text('no checkpoint')
    (tmp_path / 'link.pth').symlink_to(source)
    (tmp_path / 'mine.pth').write_text('mine')
    assert convert([str(source), str(tmp_path / out)]) == 2
    said = 'was not written by' if out == 'mine.pth' else 'is read by this command'
    assert f'{tmp_path / out} {said}' in capsys.readouterr().err
    assert (
        source.read_text() == 'no checkpoint'
        and (tmp_path / 'mine.pth').read_text() == 'mine'
    )
    torch.save({'model': naver_vit(64, 2, mixed=True, ape=False)}, source)
    for _ in range(2):
        assert convert([str(source), str(tmp_path / 'new.pth')]) == 0


def test_tool_takes_the_backbone_out_of_a_detector(convert, tmp_path: Path):
    swin = RoPESwin(
        arch=dict(embed_dims=32, depths=(2, 2), num_heads=(1, 2)), out_indices=(0, 1)
    )
    weights = {f'backbone.{key}': value for key, value in swin.state_dict().items()}
    weights['bbox_head.cls.weight'] = torch.zeros(2)
    source = saved({'state_dict': weights, 'meta': {}}, tmp_path)
    destination = str(tmp_path / 'backbone.pt')
    assert convert([source, destination, '--report']) == 0
    assert equal(read_weights(destination, None), swin.state_dict())


def test_what_timm_gets_loads_there(timm: ModuleType, convert, tmp_path: Path):
    source = saved({'model': naver_vit(384, 12, mixed=True, ape=True)}, tmp_path)
    destination = tmp_path / 'timm.pth'
    assert convert([source, str(destination), '--to', 'timm']) == 0
    theirs = timm.create_model('vit_small_patch16_rope_mixed_ape_224', num_classes=0)
    theirs.load_state_dict(torch.load(destination, weights_only=True))


def test_tool_says_what_it_cannot_do(
    convert, tmp_path: Path, capsys: pytest.CaptureFixture
):
    swin = saved({'model': naver_swin(32, (2, 2), (1, 2), 'mixed')}, tmp_path)
    out = tmp_path / 'x.pth'
    assert convert([swin, str(out), '--to', 'timm']) == 2
    assert 'timm has no Swin' in capsys.readouterr().err
    assert convert([str(tmp_path / 'none.pth'), str(out)]) == 2
    assert 'no such file' in capsys.readouterr().err
    learned = RoPEViT(rope=dict(type='AxialRoPE', learned=True), **SMALL).state_dict()
    assert convert([saved(learned, tmp_path), str(out), '--to', 'naver']) == 2
    assert 'blocks.0.attn.rope.freqs is [2, 1, 16]' in capsys.readouterr().err
    assert not out.exists()


def test_tool_writes_safetensors(convert, tmp_path: Path):
    pytest.importorskip('safetensors', reason='no safetensors; pip install safetensors')
    source = saved({'model': naver_swin(32, (2, 12), (1, 2), 'mixed')}, tmp_path)
    options = dict(
        arch=dict(embed_dims=32, depths=(2, 12), num_heads=(1, 2)), out_indices=(0, 1)
    )
    expected = load(RoPESwin, source, **options).state_dict()
    for target in ('naver', 'ours'):
        destination = str(tmp_path / f'{target}.safetensors')
        assert convert([source, destination, '--to', target]) == 0
        assert equal(load(RoPESwin, destination, **options).state_dict(), expected)


@pytest.mark.parametrize('target', ['naver', 'timm'])
def test_tool_refuses_adapters_beside_their_weights(
    convert, target: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """The base model alone would be what the file gives."""
    model, destination = RoPEViT(**VIT, lora=dict(rank=2)), tmp_path / f'{target}.pth'
    source = saved(model.state_dict(), tmp_path)
    assert convert([source, str(destination), '--to', target]) == 2
    assert 'merge_lora' in capsys.readouterr().err and not destination.exists()
    model.merge_lora()
    source = saved(model.state_dict(), tmp_path)
    assert convert([source, str(destination), '--to', target]) == 0
