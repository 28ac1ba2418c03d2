"""`rope-dense predict` of a panoptic model: COCO's files, and a picture of nothing found."""

import json
from pathlib import Path

import mmcv
import numpy as np
import pytest
from mmdet.models.seg_heads import MaskFormerFusionHead
from mmengine.structures import PixelData
from PIL import Image

import rope_dense
from helpers.panoptic import provide_panopticapi, read_ids, small_panoptic
from rope_dense_command import command


def test_segments_are_written_and_nothing_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provide_panopticapi(monkeypatch)
    config, weights = small_panoptic(tmp_path)
    pictures, out = (
        sorted(tmp_path.glob('data/panoptic/val2017/*.jpg')),
        tmp_path / 'out',
    )
    process, calls = MaskFormerFusionHead.panoptic_postprocess, list[int]()

    def find(self: MaskFormerFusionHead, *given: object) -> PixelData:
        """Nothing in the second of three images."""
        found = process(self, *given)
        calls.append(len(calls))
        if len(calls) % 3 == 2:
            found.sem_seg[:] = 7
        return found

    monkeypatch.setattr(MaskFormerFusionHead, 'panoptic_postprocess', find)
    given = [config, weights, str(pictures[0].parent), '--out', str(out)]
    assert command('predict')(given) == 0
    content = json.loads((out / 'panoptic.json').read_text())
    segments = [len(x['segments_info']) for x in content['annotations']]
    assert segments[1] == 0 < min(segments[0], segments[2]) and len(calls) == 3
    assert f'{sum(segments)} segments in 3 images' in capsys.readouterr().out
    assert [x['file_name'] for x in content['images']] == [x.name for x in pictures]

    model = rope_dense.load(config, weights, device='cpu')
    for image, entry, sample in zip(
        content['images'],
        content['annotations'],
        model([*map(str, pictures)]),
        strict=True,
    ):
        assert entry['image_id'] == image['id'] and (
            image['height'],
            image['width'],
        ) == (64, 96)
        plain, ids = (
            model.plain(sample),
            read_ids(out / 'panoptic' / entry['file_name']),
        )
        np.testing.assert_array_equal(ids, plain['ids'])
        classes = np.array([255, *plain['labels']])[ids]
        with Image.open(out / 'labels' / entry['file_name']) as labels:
            np.testing.assert_array_equal(np.asarray(labels), classes)
        drawn = mmcv.imread(out / 'pictures' / image['file_name']).astype(int)
        difference = abs(drawn - mmcv.imread(pictures[image['id'] - 1])).mean()
        assert (difference < 8) == (not entry['segments_info'])
