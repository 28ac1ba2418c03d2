"""The benchmarks: what they compare is one computation, and their arithmetic is right."""

import csv
import importlib
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from helpers.reference import relative_error

sys.path.insert(0, str(Path(__file__).parents[2] / 'benchmarks'))

import bench_apply_rotary
import bench_backbone
import bench_throughput
import correctness
import gpu
import peers
import run
from bench_backbone import JOBS, within, work
from bench_rotate import bench_rotate, check
from measure import (
    Case,
    compare,
    in_new_process,
    peak_memory,
    quantiles,
    table,
    write_csv,
)
from page import page
from parity import architectures, shallow
from rope_dense.rope.rotation import Implementation
from rotations import RotationShape, forms

CPU = torch.device('cpu')
FP16 = 'upernet_vit_rope_mixed'  # trained in fp16 last
SMALL = dict(sizes=[(32, 32)], modes=['forward'], rounds=1, processes=0, memory=False)


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline='') as stream:
        return list(csv.DictReader(stream))


# --------------------------------------------------------------------- measure


def test_cases_alternate_and_only_the_run_is_timed():
    calls: list[str] = []

    def case(name: str) -> Case:
        return Case(
            name, lambda: calls.append('prepare') or (lambda: calls.append(name))
        )

    rows = compare([case('a'), case('b')], CPU, rounds=20, warmup=1)
    assert set(calls[::2]) == {'prepare'}
    rounds = list(zip(calls[1::4], calls[3::4], strict=True))
    assert rounds[0] == ('a', 'b') and set(rounds) == {('a', 'b'), ('b', 'a')}
    assert len(rounds) == 1 + 20
    assert [row['implementation'] for row in rows] == ['a', 'b']
    assert rows[0]['median_ratio'] == rows[0]['p20_ratio'] == rows[0]['p80_ratio'] == 1
    assert rows[1]['median_ratio'] > 0


@pytest.mark.slow
def test_a_new_process_is_another_with_as_many_threads():
    assert in_new_process(os.getpid) not in (os.getpid(), in_new_process(os.getpid))
    assert in_new_process(torch.get_num_threads) == torch.get_num_threads()


def test_rounds_of_all_processes_count(monkeypatch: pytest.MonkeyPatch):
    results = iter([[[1.0, 2.0], [3.0, 6.0]], [[4.0], [20.0]]])
    monkeypatch.setattr(
        bench_backbone, 'in_new_process', lambda *arguments: next(results)
    )
    rows = bench_backbone.bench_backbone(
        'vit',
        'base',
        CPU,
        sizes=[(64, 64)],
        modes=['both'],
        processes=2,
        names='ab',
        memory=False,
    )
    assert [row['median_ms'] for row in rows] == [2000, 6000]
    assert [row['median_ratio'] for row in rows] == [1, 3]
    assert rows[1]['p80_ratio'] == pytest.approx(4.2)


def test_quantiles():
    expected = dict(median_ms=3.5, p20_ms=2.0, p80_ms=5.0)
    assert quantiles('_ms', [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(expected)


def test_peak_memory_is_that_of_the_tensors_that_live_at_once():
    def two_of_three_at_once() -> None:
        first = torch.ones(2**20)
        del first
        second, third = torch.ones(2**20), torch.ones(2**19)
        del second, third

    memory = peak_memory(lambda: two_of_three_at_once, CPU)
    assert memory['peak_tensors_mb'] == pytest.approx(6, abs=0.1)
    assert memory['peak_rss_mb'] > 6


def test_csv_has_the_columns_of_all_rows(tmp_path: Path):
    file = tmp_path / 'new' / 'a.csv'
    write_csv(file, [dict(a=1.23456789), dict(a=2, b='x')])
    assert read(file) == [dict(a='1.2346', b=''), dict(a='2', b='x')]
    assert list(file.parent.iterdir()) == [file]


def test_tables_are_aligned():
    text = table([dict(a='one', b=1.0), dict(a='three', c=2)], ['a', 'b'])
    assert text.splitlines() == ['a      b', 'one    1', 'three  -']


# -------------------------------------------------------------------- rotation


@pytest.mark.parametrize(
    'shape',
    [
        RotationShape(2, (3, 2), 2, 8),
        RotationShape(2, (3, 2), 2, 8, 1, 'axial'),
        RotationShape(2, (3, 2), 2, 8, 5, 'axial', 'half'),
    ],
)
def test_forms_of_the_rotation_agree(shape: RotationShape):
    qkv, rotary = shape.qkv(CPU, torch.float32), shape.rotary(CPU)
    by_name = forms(CPU, shape.pair_layout)
    del by_name['definition, compiled']  # takes long to compile
    check(by_name, qkv, rotary, shape)
    assert {'packed', 'stack (timm form)'} < by_name.keys()
    assert ('complex (rope-vit form)' in by_name) == (
        shape.pair_layout == 'interleaved'
    )
    broken = dict(broken=lambda qkv, *others: by_name['packed'](qkv + 1, *others))
    with pytest.raises(AssertionError, match='broken differs'):
        check(broken, qkv, rotary, shape)


@pytest.mark.parametrize('attention, first', [(False, 'copy'), (True, 'none')])
def test_forms_are_timed_with_the_gradient_of_learned_angles(
    attention: bool, first: str
):
    names, with_gradient = ('packed', 'definition'), []
    original = torch.autograd.backward

    def backward(outs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> None:
        original(outs, grads)
        with_gradient.append(len(outs))

    shape = RotationShape(2, (3, 2), 2, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.autograd, 'backward', backward)
        rows = bench_rotate(
            CPU, work='tiny', shape=shape, attention=attention, rounds=1, names=names
        )
    assert [row['implementation'] for row in rows] == [first, *names] * 3
    assert set(with_gradient) == {1 if attention else 3}
    assert [row['mode'] for row in rows[::3]] == ['forward', 'backward', 'both']
    assert all(row['median_ms'] > 0 for row in rows)


# ------------------------------------------------------------------- backbones


@torch.no_grad()
@pytest.mark.parametrize(
    'form, ours',
    [
        (
            lambda: peers.detectron2_form('tiny'),
            lambda: peers.vitdet(
                'tiny', rope=None, attention=dict(type='DecomposedBias')
            ),
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
    model = peers.swin(
        dict(embed_dims=8, depths=(1,), num_heads=(1,)), out_indices=(0,)
    )
    image = torch.randn(1, 3, 32, 32)
    weight = model.patch_embed.proj.weight
    for mode in ('both', 'backward', 'both'):
        prepare = work(model, image, mode, torch.float32)
        prepare()()
        grad = weight.grad.clone()
        prepare()()
        torch.testing.assert_close(weight.grad, grad)
    model.zero_grad()
    unfused = partial(bench_throughput.context, 'unfused', CPU)
    within(unfused, work(model, image, 'forward', torch.bfloat16))()()
    assert weight.grad is None


@pytest.mark.slow
@pytest.mark.parametrize(
    'job, arch', [('vit', 'small'), ('dinov3', 'small'), ('swin', 'tiny')]
)
def test_jobs_build_all_their_models(timm, job: str, arch: str):
    image = torch.randn(1, 3, 64, 64)
    for name, build in JOBS[job](arch).items():
        if name == 'mmdet':
            pytest.importorskip('mmdet', reason='no mmdet to compare with')
        work(build(), image, 'forward', torch.float32)()()
        assert peers.why_not(name) is None


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch):
    reasons = {'mmdet': 'mmdet cannot be imported'}
    monkeypatch.setattr(bench_backbone, 'why_not', reasons.get)
    names = ['mmdet', 'rope_dense, mixed']
    rows = bench_backbone.bench_backbone('swin', 'tiny', CPU, names=names, **SMALL)
    assert [row['implementation'] for row in rows] == ['rope_dense, mixed', 'mmdet']
    assert (
        rows[0]['median_ratio'] == 1
        and rows[1]['left_out'] == 'mmdet cannot be imported'
    )
    assert 'median_ms' not in rows[1]


def test_a_project_that_cannot_be_imported_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    def broken() -> None:
        raise AssertionError('mmcv is too old')

    monkeypatch.setattr(peers, 'import_mmdet_swin', broken)
    reason = peers.why_not.__wrapped__('mmdet')
    assert reason == 'mmdet cannot be imported: AssertionError: mmcv is too old'


def test_stand_ins_are_for_one_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / 'with_operators.py').write_text('from not_installed import operator')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match='not_installed'):
        importlib.import_module('with_operators')
    stand_in = SimpleNamespace(operator=1)
    module = peers.import_with_stand_ins('with_operators', {'not_installed': stand_in})
    assert module.operator == 1 and 'not_installed' not in sys.modules
    monkeypatch.delitem(sys.modules, 'with_operators')


@pytest.mark.slow
def test_rotation_and_windows_have_a_share():
    sizes = {('vit', 'small'): [64], ('swin', 'tiny'): [64]}
    names = ['rope_dense, no position', 'rope_dense, mixed']
    rows = bench_backbone.bench_share(CPU, sizes=sizes, names=names, rounds=1)
    share = {
        (row['work'][:4], row['mode'], row['implementation'][12:], row['kind']): row[
            'median_percent'
        ]
        for row in rows
    }
    assert len(share) == 2 * 2 * 2 * 3 and all(
        0 <= percent < 100 for percent in share.values()
    )
    for mode in ('forward', 'both'):
        for model in ('vit ', 'swin'):
            assert share[model, mode, 'no position', 'rotation'] == 0
            assert share[model, mode, 'mixed', 'rotation'] > 0
        assert share['vit ', mode, 'mixed', 'windows'] == 0
        assert share['swin', mode, 'no position', 'windows'] > 0


# ---------------------------------------------------------------- the programs


def test_sizes_of_fast_rope_are_those_of_the_paper():
    sizes = bench_apply_rotary.PAPER_SIZES
    assert len(set(sizes)) == 300
    assert max(size.values for size in sizes) == 128 * 8 * 56 * 56 * 128
    assert (
        set(bench_apply_rotary.SAMPLE) < set(sizes)
        and len(bench_apply_rotary.SAMPLE) == 20
    )


def test_gains_of_fast_rope_are_those_in_speed():
    times = dict(eager=(6.0, 8.0), compiled=(3.0, 16.0), fused=(1.0, 2.0))
    rows = [
        dict(implementation=name, size=size, median_ms=milliseconds)
        for name, both in times.items()
        for size, milliseconds in zip('ab', both, strict=True)
    ]
    gains = {
        row.pop('implementation'): list(row.values())
        for row in bench_apply_rotary.summary(rows)
    }
    assert gains == {
        'compiled over eager': [25, -50, 100],
        'fused over eager': [400, 300, 500],
        'fused over compiled': [450, 200, 700],
    }


def test_fast_rope_has_rows_for_each_precision():
    sizes = [bench_apply_rotary.Size(1, 2, 3, 16), bench_apply_rotary.Size(2, 1, 2, 32)]
    rows = bench_apply_rotary.bench_apply_rotary(
        CPU, dtype=torch.float16, sizes=sizes, rounds=1, with_compiled=False
    )
    works = ['float16, angles in float16'] * 5 + ['float16, angles in float32'] * 5
    assert [row['work'] for row in rows] == works
    assert [row['bench'] for row in rows[3:5]] == [
        'fast-rope',
        'fast-rope, gain in percent over 2 of 300 sizes',
    ]


@pytest.mark.slow
def test_a_suite_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run.main(['throughput', '--quick', '--out', str(tmp_path)])
    (file,) = tmp_path.iterdir()
    rows = read(file)
    assert len(rows) == 3 * 2 * 3 and rows[0]['implementation'] == 'bias, unfused'
    for row in rows:
        assert float(row['images_per_s']) == pytest.approx(
            1000 / float(row['median_ms']), rel=1e-3
        )
        assert (float(row['percent_over_bias']) == 0) == (row['position'] == 'bias')
        assert row['torch'] == torch.__version__
    lines = capsys.readouterr().out.splitlines()
    (header,) = (line for line in lines if line.startswith('model '))
    assert header.split('  ')[-1] == 'log-axial, fused'
    assert [line.split()[0] for line in lines[lines.index(header) + 1 :] if line] == [
        'nat_mini', 'swin_tiny', 'vit_small'
    ]  # fmt: skip
    run.main(['--list'])
    assert 'vitdet-both' in capsys.readouterr().out


def test_throughput_has_the_models_of_the_paper():
    counts = dict(nat=7, dinat=7, swin=3, vit=2)
    assert len(bench_throughput.MODELS) == 19
    for family, number in counts.items():
        names = [n for n in bench_throughput.MODELS if n.split('_')[0] == family]
        assert len(names) == number


def test_throughput_is_compared_with_the_bias_of_the_same_attention():
    rows = [
        dict(
            work='vit_small',
            position=position,
            images_per_s=speed,
            percent_over_bias=percent,
        )
        | dict(implementation=f'{position}, {attention}')
        for attention in ('unfused', 'fused')
        for position, speed, percent in (('bias', 200.0, 0.0), ('none', 250.0, 25.0))
    ]
    rows.append(
        dict(work='vit_small', implementation='bias, flash', left_out='no bias')
    )
    (text,) = bench_throughput.paper_tables(rows)
    header, line = text.splitlines()
    assert header.count('bias') == 3 and header.index('bias, flash') < header.index(
        'none, unfused'
    )
    assert line.count('250 (+25 %)') == 2 and line.count('200') == 2 and '-' in line
    image = torch.zeros(1, 3, 8, 8)
    assert 'no bias' in bench_throughput.why_not('natten', 'bias', image)
    assert 'CUDA' in bench_throughput.why_not('natten', 'none', image)


@pytest.mark.parametrize(
    'main, arguments, says',
    [
        (run.main, ['vit512'], "no suite 'vit512'; there are rotate, vit-224"),
        (run.main, ['rotate', '--device', 'cuda'], 'finds no CUDA device'),
        (gpu.main, [], 'finds no CUDA device'),
        (gpu.main, ['speed'], "no section 'speed'; there are correctness, parity"),
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


@pytest.mark.slow
def test_the_program_for_a_gpu_runs_on_one_that_pretends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The sections that take seconds; the others measure models, which tests run on this GPU."""
    sections = 'correctness', 'rotation', 'graphs', 'blocks', 'compile', 'two-gpus'
    arguments = [*sections, '--pretend', '--out', str(tmp_path)]
    assert gpu.main(arguments) == 0
    rows = {section: read(tmp_path / f'gpu-{section}.csv') for section in sections}
    checked = [row for row in rows['correctness'] if row['values']]
    assert {row['implementation'] for row in checked} == {'packed', 'triton'}
    assert all(
        row['ok'] == 'True' and float(row['grad_angles']) < 1e-2 for row in checked
    )
    assert {row['bench'] for row in rows['rotation']} == {'rotate', 'rotate and attend'}
    assert [row['implementation'] for row in rows['graphs']] == ['eager', 'graph']
    assert (
        float(rows['graphs'][1]['error']) == 0
    )  # of another image than the captured one
    for section, bench in (('compile', 'compile'), ('blocks', 'compile by blocks')):
        counted, *compared = rows[section]
        assert int(counted['compilations']) == 0 and counted['ok'] == 'True'
        assert [row['implementation'] for row in compared] == ['eager', 'compiled'] * 2
        assert {row['bench'] for row in rows[section]} == {bench}
    assert [(row['implementation'], row['ok']) for row in rows['two-gpus']] == [
        (way, 'True') for way in ('one', 'DDP', 'FSDP')
    ]
    text = (tmp_path / 'gpu.md').read_text()
    assert text.count('\n## ') == len(sections) and '## Not as it should be' not in text
    capsys.readouterr()
    assert gpu.main(arguments) == 0  # repeats nothing
    assert (tmp_path / 'gpu.md').read_text() == text
    assert all(
        line.endswith(': before')
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(sections) and ':' in line
    )


def test_the_jobs_for_a_gpu_are_of_known_sections_and_models():
    jobs = gpu.full_jobs(CPU)
    assert {job.section for job in jobs} == set(gpu.SECTIONS)
    assert gpu.COMPILED and set(gpu.COMPILED) < gpu.IMAGES.keys()
    arch = dict(vit='base', swin='tiny', dinov3='large', vitdet='base')
    for job, names in gpu.MODELS.items():
        assert set(names) <= JOBS[job](arch[job]).keys()


def test_a_job_that_fails_or_has_no_time_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def fail() -> list[dict]:
        raise RuntimeError('out of memory\nand more')

    jobs = [
        gpu.Job('rotation', 'failing', 1, fail),
        gpu.Job('rotation', 'long', 10000, list),
        gpu.Job(
            'rotation',
            'good',
            1,
            lambda: [dict(implementation='packed', median_ratio=2.0)],
        ),
    ]
    monkeypatch.setattr(gpu, 'pretended_jobs', lambda device: jobs)
    arguments = ['--pretend', '--out', str(tmp_path)]
    assert gpu.main(arguments) == 1
    failing, long, good = read(tmp_path / 'gpu-rotation.csv')
    assert (failing['left_out'], failing['ok']) == (
        'RuntimeError: out of memory',
        'False',
    )
    assert (long['left_out'], long['ok']) == ('no time left for about 10000 s', '')
    assert (good['implementation'], good['work'], good['left_out']) == (
        'packed',
        'good',
        '',
    )
    assert capsys.readouterr().out.splitlines()[-1] == 'NOT OK: rotation, failing'
    _, wrong, table, missing = (tmp_path / 'gpu.md').read_text().split('\n## ')
    assert wrong.endswith('- rotation, failing: RuntimeError: out of memory\n')
    assert table.endswith('| rotation, good | 2 |\n')
    assert missing == 'Left out\n\n- rotation, long: no time left for about 10000 s\n'
    ran: list[str] = []
    for name, job in enumerate(
        jobs
    ):  # a second run takes up what is missing, and that alone
        jobs[name] = replace(
            job, seconds=1, run=lambda name=job.name: ran.append(name) or []
        )
    assert gpu.main(arguments) == 0
    assert ran == ['failing', 'long']
    monkeypatch.setattr(gpu, 'source_hash', lambda: 'other code')
    assert gpu.main(arguments) == 0
    assert ran == ['failing', 'long', 'failing', 'long', 'good']


def test_after_an_illegal_access_a_new_process_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def lose() -> list[dict]:
        monkeypatch.setattr(gpu, 'can_go_on', lambda: False)
        raise RuntimeError('an illegal memory access')

    def take_over(program: str, arguments: list[str]) -> None:
        monkeypatch.setattr(gpu, 'can_go_on', lambda: True)
        begun.append(arguments[1:])
        raise SystemExit

    begun: list[list[str]] = []
    good = gpu.Job('rotation', 'good', 1, lambda: [dict(implementation='packed')])
    jobs = [gpu.Job('rotation', 'losing', 1, lose), good]
    monkeypatch.setattr(gpu, 'pretended_jobs', lambda device: jobs)
    monkeypatch.setattr(gpu.os, 'execv', take_over)
    arguments = ['--pretend', '--out', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', arguments)
    with pytest.raises(SystemExit):
        gpu.main(arguments)
    [more] = begun
    assert more[:3] == arguments and more[-2:] == ['--failed', 'rotation, losing']
    assert gpu.main(more) == 1 and len(begun) == 1
    losing, found = read(tmp_path / 'gpu-rotation.csv')
    assert losing['left_out'] and found['implementation'] == 'packed'


def test_each_architecture_has_a_shallow_form():
    with torch.device('meta'):
        for cls, name in architectures():
            assert len(list(shallow(cls, name).parameters())) > 10


def test_the_page_has_values_of_both_modes_in_a_cell():
    common = dict(bench='rotate', work='tiny', dtype='float32')
    rows = [
        common
        | dict(implementation='copy', mode=mode, median_ratio=1.0, gb_per_s=speed)
        for mode, speed in (('forward', 2000.0), ('both', 2500.0))
    ]
    rows += [
        common | dict(implementation='packed', mode=mode, median_ratio=ratio)
        for mode, ratio in (('forward', 1.5), ('both', 1.25))
    ]
    other = common | dict(
        work='other', implementation='packed', mode='both', median_ratio=3.0
    )
    text = page(dict(rotation=[*rows, other]), dict(device='a GPU', torch='2'))
    assert 'Device a GPU, torch 2.\n' in text
    assert text.splitlines()[-4:] == [
        '|  | copy, GB/s | packed |',
        '| --- | ---: | ---: |',
        '| rotate, tiny, float32 | 2000 / 2500 | 1.5 / 1.25 |',
        '| rotate, other, float32 | - | 3 |',
    ]


def test_a_wrong_kernel_is_switched_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv('ROPE_DENSE_TRITON', '1')  # restored after the test
    monkeypatch.setattr(correctness, 'why_no_triton', lambda device: None)
    triton = pytest.importorskip('rope_dense.rope.rotation_triton', reason='no triton')
    monkeypatch.setattr(triton, 'IS_ENABLED', True)
    wrong = Implementation(
        rotate=lambda qkv, *_: 1.1 * qkv,
        backward=lambda grad, table, layout, prefix, rotated: (
            grad,
            grad.new_full(table.shape[:-1], torch.nan),
        ),
    )
    monkeypatch.setattr(correctness, 'kernel', lambda: wrong)
    shapes = {'tiny': RotationShape(2, (3, 2), 2, 8)}
    rows = correctness.correctness(CPU, shapes, [torch.float32])
    assert {row['implementation']: row['ok'] for row in rows} == dict(
        packed=True, triton=False
    )
    assert os.environ['ROPE_DENSE_TRITON'] == '0' and not triton.IS_ENABLED
