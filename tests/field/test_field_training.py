"""From labels to figures: the evaluator, the data set and the losses, whatever the format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmdet.structures.bbox import HorizontalBoxes
from mmengine.registry import DATASETS, METRICS, DefaultScope
from mmengine.structures import InstanceData

from helpers.field import coco, image, write
from helpers.grid import CONFIGS
from rope_dense.data.dense.mosaic import AffineMosaic
from rope_dense.data.loading import LoadError, NamingPipeline
from rope_dense.project.checks.data import check_data
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

OWN: dict[str, Any] = dict(
    backbone='tiny', weights=None, size=64, epochs=1, batch_size=2
)


def coco_folder(root: Path, ids: list, image_ids: list) -> Path:
    """Two images with an object each, whose annotations and images have these ids."""
    images = [dict(id=i, file_name=f'{n}.png') for n, i in enumerate(image_ids)]
    boxes = [[5, 5, 20, 10], [10, 10, 15, 12]]
    annotations = [
        dict(id=i, image_id=image_ids[n], bbox=boxes[n], area=0)
        for n, i in enumerate(ids)
    ]
    for split in ('train', 'val'):
        write(root / f'annotations/{split}.json', coco(images, annotations, {1: 'cat'}))
        for n in range(len(ids)):
            image(root / split / f'{n}.png')
    return root


@pytest.mark.parametrize(
    'ids, image_ids',
    [
        ([0, 1], [0, 1]),
        (['q', 'r'], ['a', 'b']),
        ([1, 1], [7, 9]),
        ([None, None], [1.0, 2.0]),
    ],
    ids=['from 0', 'text', 'repeated', 'absent'],
)
def test_perfect_predictions_have_ap_1(
    tmp_path: Path, ids: list, image_ids: list
) -> None:
    """F1, F2, F5: ids of 0 gave 0.5, text 0.0; areas of 0 left no object."""
    root = coco_folder(tmp_path / 'data', ids, image_ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        cfg = load_config(
            str(CONFIGS / 'own/detection.py'), own=dict(OWN, data_root=root)
        )
        check_data(cfg, ('train_dataloader', 'val_dataloader'))
        with DefaultScope.overwrite_default_scope('mmdet'):
            dataset = DATASETS.build(cfg.val_dataloader.dataset)
            metric = METRICS.build(cfg.val_evaluator)
    metric.dataset_meta = dataset.metainfo
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        assert info['instances'], 'an object is lost'
        boxes = torch.tensor([item['bbox'] for item in info['instances']])
        found = InstanceData(bboxes=boxes, scores=torch.ones(len(boxes)))
        found.labels = torch.tensor([item['bbox_label'] for item in info['instances']])
        sample = dict(
            img_id=info['img_id'], ori_shape=(30, 40), pred_instances=found.to_dict()
        )
        metric.process({}, [sample])
    assert metric.evaluate(size=len(dataset))['coco/bbox_mAP'] == pytest.approx(1.0)


def losses(config: str, root: Path, steps: int) -> list[float]:
    """The losses of the first steps of a training of own data."""
    from mmengine.runner import Runner, set_random_seed

    from rope_dense.project.model import build_model

    cfg = load_config(config, own=dict(OWN, data_root=root, classes=['cat', 'dog']))
    loader = dict(cfg.train_dataloader, num_workers=0, persistent_workers=False)
    set_random_seed(0)
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = build_model(cfg)
        model.init_weights()
        batches = Runner.build_dataloader(loader, seed=0)
        optimizer = torch.optim.SGD(model.parameters(), 1e-4)
        found = []
        set_random_seed(1)
        while len(found) < steps:
            for batch in batches:
                data = model.data_preprocessor(batch, training=True)
                loss, _ = model.parse_losses(model(**data, mode='loss'))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
    return found[:steps]


@pytest.mark.slow
def test_yolo_and_coco_have_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    yolo, as_coco = tmp_path / 'yolo', tmp_path / 'coco'
    for split in ('train', 'val'):
        images, annotations = [], []
        for n in range(6):
            file = image(yolo / f'images/{split}/{n}.png')
            write(as_coco / split / f'{n}.png', file.read_bytes())
            left, top, width, height = (
                int(x) for x in rng.integers((0, 0, 8, 6), (20, 15, 20, 15))
            )
            label = int(rng.integers(2))
            images.append(dict(id=n, file_name=f'{n}.png'))
            annotations.append(
                dict(
                    image_id=n,
                    category_id=label,
                    bbox=[left, top, width, height],
                    area=1,
                )
            )
            shares = (
                (left + width / 2) / 40,
                (top + height / 2) / 30,
                width / 40,
                height / 30,
            )
            line = ' '.join(map(repr, shares))
            write(yolo / f'labels/{split}/{n}.txt', f'{label} {line}\n')
        text = coco(images, annotations, {0: 'cat', 1: 'dog'})
        write(as_coco / f'annotations/{split}.json', text)
    write(
        yolo / 'data.yaml', 'train: images/train\nval: images/val\nnames: [cat, dog]\n'
    )
    config = str(CONFIGS / 'own/realtime.py')
    found = losses(config, yolo, 4)
    assert found == pytest.approx(losses(config, as_coco, 4), rel=1e-6)
    assert len(set(found)) == 4


def test_classes_txt_lists_the_classes_of_labels_without_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its order counts, a class may have no object, and what it lacks is left out and counted."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / 'data'
    box = '<bndbox><xmin>{}</xmin><ymin>5</ymin><xmax>20</xmax><ymax>20</ymax></bndbox>'
    for split in ('train', 'valid'):
        for n, names in enumerate((['cat'] * 19, ['dog', 'eel'])):
            image(root / split / f'{n}.jpg')
            objects = ''.join(
                f'<object><name>{name}</name>{box.format(left / 9)}</object>'
                for left, name in enumerate(names)
            )
            write(root / split / f'{n}.xml', f'<annotation>{objects}</annotation>')
    write(root / 'classes.txt', 'dog\nbird\ncat\n')
    cfg = load_config(str(CONFIGS / 'own/detection.py'), own=dict(OWN, data_root=root))
    assert cfg.train_dataloader.dataset.metainfo.classes == ('dog', 'bird', 'cat')
    assert "2 x object of the unknown class 'eel' (left out)" in cfg.own_data
    with pytest.raises(UsageError, match='classes Cat are not in the labels'):
        load_config(
            str(CONFIGS / 'own/detection.py'),
            own=dict(OWN, data_root=root, classes=['Cat']),
        )


def test_a_mosaic_names_the_image_that_cannot_be_loaded(tmp_path: Path) -> None:
    """It named the first image of the mosaic, which was whole."""
    write(tmp_path / 'broken.png', 'no image')

    class Others(list):
        def get_data_info(self, index: int) -> dict:
            return self[index]

    given = dict(
        img=np.zeros((30, 40, 3), np.uint8),
        img_path='whole.png',
        gt_bboxes=HorizontalBoxes(torch.zeros(0, 4)),
        dataset=Others([dict(img_path=str(tmp_path / 'broken.png'), instances=[])]),
    )
    pipeline = NamingPipeline([AffineMosaic(part_size=16, max_cached_images=0)])
    with pytest.raises(LoadError, match=r'broken\.png cannot be loaded') as error:
        pipeline(given)
    assert 'whole.png' not in str(error.value)
