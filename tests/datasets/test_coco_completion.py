"""COCO files without `area` or `iscrowd`, and with boxes that have none."""

import json
from pathlib import Path

import pytest

from rope_dense.datasets.coco_completion import SEEN, complete_annotations, completed


def content() -> dict:
    counts = dict(size=[4, 5], counts=[8, 4, 8])  # column 2 of five
    return dict(
        images=[dict(id=1, file_name='a.jpg', height=4, width=5)],
        categories=[dict(id=1, name='cat')],
        annotations=[
            dict(id=1, image_id=1, category_id=1, bbox=[0, 0, 2, 3]),
            dict(id=2, image_id=1, category_id=1, bbox=[0, 0, 4, 4],
                 segmentation=[[0, 0, 4, 0, 4, 4, 0, 4]]),
            dict(id=3, image_id=1, category_id=1, bbox=[2, 0, 1, 4], segmentation=counts),
            dict(id=4, image_id=1, category_id=1, bbox=[2, 0, -1, 4], area=7, iscrowd=1),
        ],
    )  # fmt: skip


def test_areas_are_those_of_outlines_or_boxes() -> None:
    given = content()
    lines = completed(given)
    assert [annotation['area'] for annotation in given['annotations']] == [6, 16, 4, 7]
    assert [annotation['iscrowd'] for annotation in given['annotations']] == [0, 0, 0, 1]
    assert lines[:2] == [
        '3 of 4 objects have no area: computed',
        '3 of 4 objects have no iscrowd: set to 0',
    ]
    assert lines[2].startswith('1 of 4 boxes are less than a pixel wide or high, such as [2, 0, -1')
    assert len(completed(given)) == 1  # nothing is lacking any more


def test_mmdet_reads_them_and_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip('mmdet')
    from mmdet.datasets import CocoDataset
    from mmdet.datasets.api_wrappers import COCO

    file = tmp_path / 'a.json'
    file.write_text(json.dumps(content()))
    said: list[str] = []
    monkeypatch.setattr(
        'rope_dense.datasets.coco_completion.print_log', lambda text, *_: said.append(text)
    )
    for name in ('createIndex', '__init__'):
        monkeypatch.setattr(COCO, name, getattr(COCO, name))  # as it was, afterwards
    SEEN.discard(str(file))
    complete_annotations()
    complete_annotations()
    for _ in range(2):
        dataset = CocoDataset(
            ann_file=str(file), data_prefix=dict(img=''), metainfo=dict(classes=('cat',))
        )
        boxes = [instance['bbox'] for instance in dataset.get_data_info(0)['instances']]
        assert boxes == [[0, 0, 2, 3], [0, 0, 4, 4], [2, 0, 3, 4]]
    assert len(said) == 3 and all(line.startswith(f'{file}: ') for line in said)
