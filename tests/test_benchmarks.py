"""The benchmarks: what they compare is one computation, and their arithmetic is right."""

import csv
import math
import os
import sys
from pathlib import Path

import pytest
import torch
from reference import relative_error

sys.path.insert(0, str(Path(__file__).parents[1] / 'benchmarks'))

import bench_backbone
import gpu
import peers
import run
from bench_backbone import JOBS, slope, unfused, within, work
from bench_rotate import check, direct, separable
from measure import (
    Case,
    compare,
    in_new_process,
    peak_memory,
    percent_of,
    quantiles,
    table,
    write_csv,
)
from rotations import forms, make_rotation

from rope_dense.rope import Rotation

CPU = torch.device('cpu')


def test_cases_run_in_turns_and_only_the_run_is_timed():
    calls: list[str] = []

    def case(name: str) -> Case:
        return Case(name, lambda: calls.append('prepare') or (lambda: calls.append(name)))

    rows = compare([case('a'), case('b')], CPU, rounds=20, warmup=1)
    assert set(calls[::2]) == {'prepare'}
    rounds = list(zip(calls[1::4], calls[3::4], strict=True))
    assert rounds[0] == ('a', 'b') and set(rounds) == {('a', 'b'), ('b', 'a')}
    assert len(rounds) == 1 + 20
    assert [row['implementation'] for row in rows] == ['a', 'b']
    assert rows[0]['median_ratio'] == rows[0]['p20_ratio'] == rows[0]['p80_ratio'] == 1
    assert rows[1]['median_ratio'] > 0


def test_a_new_process_is_another_with_as_many_threads():
    assert in_new_process(os.getpid) not in (os.getpid(), in_new_process(os.getpid))
    assert in_new_process(torch.get_num_threads) == torch.get_num_threads()


def test_rounds_of_all_processes_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench_backbone, 'in_new_process', lambda function, *arguments: next(found))
    found = iter([[[1.0, 2.0], [3.0, 6.0]], [[4.0], [20.0]]])
    rows = bench_backbone.bench_backbone(
        'vit', 'base', CPU, sizes=[(64, 64)], modes=['both'], processes=2, names='ab', memory=False
    )
    assert [row['median_ms'] for row in rows] == [2000, 6000]
    assert [row['median_ratio'] for row in rows] == [1, 3]
    assert rows[1]['p80_ratio'] == pytest.approx(4.2)


def test_quantiles():
    found = quantiles('_ms', [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert found == pytest.approx(dict(median_ms=3.5, p20_ms=2.0, p80_ms=5.0))


def test_the_exponent_of_a_power_law():
    pixels = [10.0, 40.0, 160.0]
    assert slope(list(map(math.log, pixels)), [math.log(3 * x**1.5) for x in pixels]) == (
        pytest.approx(1.5)
    )


def test_peak_memory_is_that_of_the_tensors_that_live_at_once():
    def two_of_three_at_once() -> None:
        first = torch.ones(2**20)
        del first
        second, third = torch.ones(2**20), torch.ones(2**19)
        del second, third

    found = peak_memory(lambda: two_of_three_at_once, CPU)
    assert found['peak_tensors_mb'] == pytest.approx(6, abs=0.1)
    assert found['peak_rss_mb'] > 6


def test_the_share_of_an_operation_is_of_all_time():
    x = torch.ones(2**18)
    one = percent_of(lambda: lambda: (x.exp(), x.exp(), x.sin()), CPU, ['aten::exp'])
    other = percent_of(lambda: lambda: (x.exp(), x.exp(), x.sin()), CPU, ['aten::sin'])
    both = percent_of(lambda: lambda: (x.exp(), x.sin()), CPU, ['aten::exp', 'aten::sin'])
    assert 0 < one < 100 and 0 < other < 100
    assert 50 < both < 100.001  # a sum, rounded


def test_a_rotation_has_a_share(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench_backbone, 'in_new_process', lambda call, *arguments: call(*arguments))
    sizes = {('vit', 'small'): [64], ('swin', 'tiny'): [64]}
    names = ['rope_dense, no position', 'rope_dense, mixed']
    rows = bench_backbone.bench_share(CPU, sizes=sizes, names=names, rounds=1)
    found = {(row['work'][:4], row['mode'], row['implementation'][12:]): row for row in rows}
    share = {key: row['median_percent'] for key, row in found.items()}
    assert len(share) == 8 and all(0 <= percent < 50 for percent in share.values())
    for mode in ('forward', 'both'):
        assert share['vit ', mode, 'no position'] == 0 < share['vit ', mode, 'mixed']
        assert 0 < share['swin', mode, 'no position']


def test_csv_has_the_columns_of_all_rows(tmp_path: Path):
    file = tmp_path / 'new' / 'a.csv'
    write_csv(file, [dict(a=1.23456789), dict(a=2, b='x')])
    with file.open(newline='') as stream:
        assert list(csv.DictReader(stream)) == [dict(a='1.2346', b=''), dict(a='2', b='x')]
    assert list(file.parent.iterdir()) == [file]


def test_tables_are_aligned():
    text = table([dict(a='one', b=1.0), dict(a='three', c=2)], ['a', 'b'])
    assert text.splitlines() == ['a      b', 'one    1', 'three  -']


@pytest.mark.parametrize('kind', ['mixed', 'axial'])
def test_forms_of_the_rotation_agree(kind: str):
    qkv = torch.randn(2, 9, 3, 2, 8)
    found = forms(qkv, kind, side=3)
    del found['definition, compiled']  # takes long to compile
    check(found, qkv, kind, side=3)
    assert {'packed in place', 'stack (timm form)', 'complex (rope-vit form)'} < found.keys()
    broken = found | dict(broken=lambda qkv: found['definition'](qkv + 1))
    with pytest.raises(AssertionError, match='broken differs'):
        check(broken, qkv, kind, side=3)


def test_both_makings_of_the_table_agree():
    rotation = make_rotation('mixed', num_heads=2, head_dim=8, side=5, device=CPU)
    torch.testing.assert_close(separable(rotation), direct(rotation))


@torch.no_grad()
@pytest.mark.parametrize(
    'form, ours',
    [
        (
            lambda: peers.detectron2_form('tiny'),
            lambda: peers.vitdet('tiny', rope=None, use_rel_pos=True),
        ),
        (
            lambda: peers.rope_vit_form('tiny', peers.MIXED),
            lambda: peers.vit('tiny', rope=peers.MIXED),
        ),
    ],
)
def test_forms_of_others_compute_what_ours_does(form, ours):
    theirs, ours = form(), ours()
    for parameter in theirs.parameters():
        parameter.uniform_(-0.2, 0.2)
    ours.load_state_dict(theirs.state_dict())
    image = torch.randn(1, 3, 80, 96)
    assert relative_error(ours(image)[0], theirs(image)[0]) < 1e-5


def test_work_leaves_the_gradients_of_one_step():
    model = peers.swin(dict(embed_dims=8, depths=(1,), num_heads=(1,)), out_indices=(0,))
    image = torch.randn(1, 3, 32, 32)
    weight = model.patch_embed.proj.weight
    for mode in ('both', 'backward', 'both'):
        prepare = work(model, image, mode, torch.float32)
        prepare()()
        grad = weight.grad.clone()
        prepare()()
        torch.testing.assert_close(weight.grad, grad)
    model.zero_grad()
    within(unfused, work(model, image, 'forward', torch.bfloat16))()()
    assert weight.grad is None


def test_jobs_build_all_their_models(timm):
    for name, builders in (('vit', JOBS['vit']('small')), ('swin', JOBS['swin']('tiny'))):
        image = torch.randn(1, 3, 64, 64)
        for label, build in builders.items():
            if label.startswith('mmdet'):
                pytest.importorskip('mmdet', reason='no mmdet to compare with')
            work(build(), image, 'forward', torch.float32)()()
        assert next(iter(builders)) in ('rope_dense, no position', 'mmdet'), name


def test_a_suite_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run.main(['table', '--quick', '--out', str(tmp_path)])
    (file,) = tmp_path.iterdir()
    with file.open(newline='') as stream:
        rows = list(csv.DictReader(stream))
    assert [row['implementation'] for row in rows] == [
        'separable, H + W sines',
        'direct, H x W sines',
    ]
    assert float(rows[0]['median_ratio']) == 1 and rows[0]['torch'] == torch.__version__
    assert 'separable' in capsys.readouterr().out
    run.main(['--list'])
    assert 'vitdet-both' in capsys.readouterr().out


@pytest.mark.parametrize(
    'main, arguments, says',
    [
        (run.main, ['vit512'], "no suite 'vit512'; there are rotate, table"),
        (run.main, ['table', '--device', 'cuda'], 'finds no CUDA device'),
        (gpu.main, [], 'finds no CUDA device'),
    ],
)
def test_what_cannot_run_says_so(
    main, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    if torch.cuda.is_available() and 'CUDA' in says:
        pytest.skip('has a CUDA device')
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2 and says in capsys.readouterr().err


def test_the_check_for_a_gpu_passes_in_the_interpreter(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip('triton', reason='no triton; pip install -r requirements/triton.txt')
    if torch.cuda.is_available():
        pytest.skip('the interpreter is for machines without a GPU')
    monkeypatch.setattr(gpu, 'CUDA', CPU)
    monkeypatch.setattr(gpu, 'SHAPES', ((2, 2, 3, 3, 8, 2, 4),))
    rows = gpu.correctness()
    assert len(rows) == 3 * 2 * 3 * 2 and all(row['ok'] for row in rows)

    def slightly_wrong(
        sources: list[torch.Tensor], targets: list[torch.Tensor], rotation: Rotation
    ) -> None:
        for source, target in zip(sources, targets, strict=True):
            target.copy_(1.1 * source)

    monkeypatch.setattr(gpu.triton_rotary, 'turn', slightly_wrong)
    assert not any(row['ok'] for row in gpu.correctness())
