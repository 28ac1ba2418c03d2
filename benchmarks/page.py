"""The results of gpu.py on one page of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from measure import Row, readable

Cells = dict[str, object]
EXPLANATION = """\
Times are medians; a ratio is the median over the rounds of the ratios to the first of each kind (a
copy, no rotation, the first model, eager mode). `a / b` is forward / forward and backward. What is
measured and how: benchmarks/README.md. All figures: the CSV files beside this page.
"""


def page(sections: dict[str, list[Row]], constants: Row) -> str:
    """All sections that have rows, first of all what went wrong or was left out.

    Args:
        sections: rows by section of gpu.py.
        constants: see ``environment``.
    """
    about = ', '.join(f'{name} {value}' for name, value in constants.items())
    parts = [
        '# Results of benchmarks/gpu.py',
        about[0].upper() + about[1:] + '.',
        EXPLANATION,
    ]
    everything = [row for rows in sections.values() for row in rows]
    if wrong := list(
        dict.fromkeys(problem(row) for row in everything if row.get('ok') is False)
    ):
        parts += ['## Not as it should be', '\n'.join(wrong)]
    for section, rows in sections.items():
        title, line, cells = TABLES[section]
        measured = [row for row in rows if 'left_out' not in row]
        if measured:
            parts += [f'## {title}', crosstab(measured, line, cells)]
    missing = [
        row for row in everything if 'left_out' in row and row.get('ok') is not False
    ]
    if missing:
        parts += [
            '## Left out',
            '\n'.join(dict.fromkeys(problem(row) for row in missing)),
        ]
    return '\n\n'.join(part.strip() for part in parts) + '\n'


def problem(row: Row) -> str:
    """A line of a list."""
    names = ('bench', 'work', 'implementation', 'mode', 'dtype')
    what = ', '.join(str(row[name]) for name in names if row.get(name) is not None)
    keys = (
        'values',
        'grad_qkv',
        'grad_angles',
        'same_bits',
        'gradients',
        'error',
        'compilations',
    )
    keys += ('peak_gb',)
    figures = [f'{key} {readable(row[key])}' for key in keys if key in row]
    return f'- {what}: {row.get("left_out") or ", ".join(figures)}'


def crosstab(
    rows: Sequence[Row], line: Callable[[Row], str], cells: Callable[[Row], Cells]
) -> str:
    """A table with a line for each name that ``line`` gives and a column for each that ``cells``
    gives; the values of a cell are joined by slashes."""
    table: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for column, value in cells(row).items():
            if value is not None:
                texts = table.setdefault(line(row), {}).setdefault(column, [])
                texts.append(str(readable(value)))
    columns = list(
        dict.fromkeys(column for cells in table.values() for column in cells)
    )
    lines = [['', *columns], ['---'] + ['---:'] * len(columns)]
    for name, values in table.items():
        lines.append(
            [name, *(' / '.join(values.get(column, ['-'])) for column in columns)]
        )
    return '\n'.join('| ' + ' | '.join(cells) + ' |' for cells in lines)


def errors(row: Row) -> Cells:
    return {
        name: row.get(name)
        for name in ('values', 'grad_qkv', 'grad_angles', 'same_bits', 'ok')
    }


def parity_errors(row: Row) -> Cells:
    return {name: row.get(name) for name in ('values', 'gradients')}


def latencies(row: Row) -> Cells:
    names = dict(p50='median_ms', p99='p99_ms', ratio='median_ratio')
    return {name: row.get(column) for name, column in names.items()}


def ratios(row: Row) -> Cells:
    """The first of each kind has 1 for a ratio: its bandwidth or its time says more."""
    name = str(row.get('implementation'))
    if name == 'copy':
        return {'copy, GB/s': row.get('gb_per_s')}
    if name == 'none':
        return {'none, ms': row.get('median_ms')}
    return {name: row.get('median_ratio')}


def model_figures(row: Row) -> Cells:
    names = dict(ms='median_ms', ratio='median_ratio', MB='peak_tensors_mb')
    return {name: row.get(column) for name, column in names.items()}


def compiled_figures(row: Row) -> Cells:
    """Of the rows of ``bench_compile`` and ``bench_graph``."""
    if 'compilations' in row:
        return {name: row.get(name) for name in ('compilations', 'seconds', 'error')}
    if row.get('implementation') == 'eager':
        return {'eager, ms': row.get('median_ms')}
    return {'error': row.get('error'), 'ratio': row.get('median_ratio')}


def step_figures(row: Row) -> Cells:
    names = (
        'height',
        'width',
        'batch',
        'median_ms',
        'images_per_s',
        'peak_gb',
        'reserved_gb',
    )
    return {name: row.get(name) for name in names}


def named(*keys: str) -> Callable[[Row], str]:
    return lambda row: ', '.join(
        str(row[key]) for key in keys if row.get(key) is not None
    )


COMPILED = named('bench', 'work', 'dtype')
TABLES = {  # for each section of gpu.py a title, and the lines and cells of its table
    'correctness': (
        'Relative errors of the kernels against the definition in float64',
        named('work', 'dtype', 'implementation'),
        errors,
    ),
    'parity': (
        'Relative errors of backbones against the CPU in float32',
        named('implementation', 'dtype'),
        parity_errors,
    ),
    'rotation': (
        'The rotation: ratio to a copy, and within attention to none',
        named('bench', 'work', 'dtype'),
        ratios,
    ),
    'backbones': ('Backbones', named('work', 'dtype', 'implementation'), model_figures),
    'realtime': (
        'Latency of DEIMv2-S in ms',
        named('dtype', 'batch', 'implementation'),
        latencies,
    ),
    'two-gpus': ('A training step on two GPUs', named('implementation'), step_figures),
    'training': ('Training steps of the flagships', named('work'), step_figures),
    'graphs': ('CUDA graphs against eager mode', COMPILED, compiled_figures),
    'blocks': ('Compiled by blocks against eager mode', COMPILED, compiled_figures),
    'compile': ('Compiled as a whole against eager mode', COMPILED, compiled_figures),
}
