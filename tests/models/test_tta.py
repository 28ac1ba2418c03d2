"""Test-time augmentation: the views of an image, how they are merged, and one view alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, MODELS, TRANSFORMS, DefaultScope
from mmengine.structures import PixelData
from mmseg.models import SegTTAModel
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from helpers.small_configs import CONFIGS, HEIGHT, WIDTH, make_data, small_config
from rope_dense.models.seg_tta import MeanDepthTTAModel, MeanScoreTTAModel
from rope_dense.project.load import load_config

UPERNET, MASK2FORMER = 'upernet_vit_rope_mixed', 'mask2former_swin_rope_mixed'
DINO = 'dino_vitdet_rope_mixed'
SIZE = (HEIGHT, WIDTH)


class Segmentor(nn.Module):
    """The least that a test-time augmentation model needs of the model that it wraps."""

    out_channels = 3

    def test_step(self, data: dict) -> list[SegDataSample]:
        raise AssertionError(f'the views are given, and {data} is not asked for')


def view(scores: list[float], label: int) -> SegDataSample:
    """A view of one pixel."""
    sample = SegDataSample(metainfo=dict(img_path='a.jpg'))
    sample.seg_logits = PixelData(data=torch.tensor(scores).view(3, 1, 1))
    sample.gt_sem_seg = PixelData(data=torch.tensor([[[label]]]))
    return sample


def views() -> list[SegDataSample]:
    # The sums are 5.2, 4.0 and 0. A softmax per view makes them 1.2, 1.6 and 0.2: the two views
    # that lean to class 1 outvote the one that is sure of class 0.
    return [
        view([5.0, 0.0, 0.0], 0),
        view([0.1, 2.0, 0.0], 0),
        view([0.1, 2.0, 0.0], 0),
    ]


def test_scores_are_averaged_as_they_are() -> None:
    (merged,) = MeanScoreTTAModel(Segmentor()).merge_preds([views()])
    expected = torch.tensor([5.2, 4.0, 0.0]).view(3, 1, 1) / 3
    torch.testing.assert_close(merged.seg_logits.data, expected)
    assert merged.pred_sem_seg.data.tolist() == [[[0]]]
    assert merged.gt_sem_seg.data.tolist() == [[[0]]]
    assert merged.img_path == 'a.jpg'


def test_a_softmax_per_view_would_answer_differently() -> None:
    by_hand = sum(v.seg_logits.data.softmax(0) for v in views())
    (merged,) = SegTTAModel(Segmentor()).merge_preds([views()])
    assert merged.pred_sem_seg.data.item() == by_hand.argmax().item() == 1


def test_each_image_is_merged_alone() -> None:
    first, second = views(), [view([0.0, 0.0, 1.0], 2)]
    merged = MeanScoreTTAModel(Segmentor()).merge_preds([first, second])
    assert [sample.pred_sem_seg.data.item() for sample in merged] == [0, 2]


def test_depths_are_averaged() -> None:
    pair = [
        SegDataSample(pred_depth_map=PixelData(data=torch.full((1, 2, 2), d)))
        for d in (2, 5)
    ]
    other = SegDataSample(pred_depth_map=PixelData(data=torch.full((1, 3, 1), 4.0)))
    merged = MeanDepthTTAModel(Segmentor()).merge_preds([pair, [other]])
    assert [sample.pred_depth_map.data.unique().tolist() for sample in merged] == [
        [3.5],
        [4.0],
    ]


# BEiT: ratios 0.5, 0.75, 1, 1.25, 1.5, 1.75 of a base (2048, 512), the shorter side never below the
# crop of 512, proportions kept, the longer side free. 640 / 480 * 512 = 682.67, and so on.
UPERNET_VIEWS = {
    (480, 640): [(512, 683)] * 3 + [(640, 853), (768, 1024), (896, 1195)],
    (640, 480): [(683, 512)] * 3 + [(853, 640), (1024, 768), (1195, 896)],
    (512, 683): [(512, 683)] * 3 + [(640, 854), (768, 1025), (896, 1195)],
    (200, 1000): [(512, 2560)] * 3
    + [(640, 3200), (768, 3840), (896, 4480)],  # aspect 5
    (300, 300): [(512, 512)] * 3 + [(640, 640), (768, 768), (896, 896)],
}
# Mask2Former: shorter sides 0.5 to 1.75 times the crop, the longer up to 7 times.
MASK2FORMER_VIEWS = {
    (480, 640): [
        (256, 341),
        (384, 512),
        (512, 683),
        (640, 853),
        (768, 1024),
        (896, 1195),
    ],
    (200, 1000): [
        (256, 1280),
        (384, 1920),
        (512, 2560),
        (640, 3200),
        (717, 3584),
        (717, 3584),
    ],
}
DINO_VIEWS = {
    (480, 640): [(800, 1067), (600, 800), (1000, 1333)],
    (200, 1000): [(267, 1333), (200, 1000), (333, 1667)],
}
# fmt: off
BY_CONFIG = {UPERNET: UPERNET_VIEWS, MASK2FORMER: MASK2FORMER_VIEWS, DINO: DINO_VIEWS}
CASES = [
    (name, size, expected) for name, views in BY_CONFIG.items() for size, expected in views.items()
]
# fmt: on


@pytest.mark.parametrize('name, size, expected', CASES)
def test_views_have_the_published_sizes(
    name: str, size: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    """Sizes (height, width) worked out by hand; each once plain and once flipped."""
    config = Config.fromfile(CONFIGS / f'{name}.py')
    resizes, flips, _, (pack,) = config.tta_pipeline[1].transforms
    image = np.zeros((*size, 3), np.uint8)
    with TRANSFORMS.switch_scope_and_registry(config.default_scope) as transforms:
        augment = transforms.build(
            dict(type='TestTimeAug', transforms=[resizes, flips, [pack]])
        )
    results = augment(
        dict(img=image, img_shape=size, ori_shape=size, img_path='a.jpg', img_id=0)
    )
    sizes = [tuple(view.shape[-2:]) for view in results['inputs']]
    assert sizes == [size for size in expected for _ in range(2)]
    assert [sample.flip for sample in results['data_samples']] == [False, True] * len(
        expected
    )


class Case:
    """A small model in evaluation, its data sets and its config."""

    def __init__(self, name: str, data: Path, folder: Path, **test_cfg: object) -> None:
        self.config = load_config(str(small_config(name, data, folder)))
        self.config.model.test_cfg.update(test_cfg)
        self.scope = self.config.default_scope
        with MODELS.switch_scope_and_registry(self.scope) as models:
            self.model = models.build(self.config.copy().model).eval()
        self.model.init_weights()

    def sample(self, pipeline: list) -> dict:
        """The first test image, as a batch."""
        dataset = self.config.test_dataloader.dataset.copy()
        dataset.pipeline = pipeline
        with DATASETS.switch_scope_and_registry(self.scope) as datasets:
            return pseudo_collate([datasets.build(dataset)[0]])

    @torch.no_grad()
    def plain(self) -> SegDataSample:
        pipeline = self.config.test_dataloader.dataset.pipeline
        return self.model.test_step(self.sample(pipeline))[0]

    @torch.no_grad()
    def augmented(self, flips: tuple[float, ...], **tta_model: object) -> SegDataSample:
        """Through the config's own TTA model, at the size of the plain test."""
        read, augment = self.config.copy().tta_pipeline
        plain = self.config.test_dataloader.dataset.pipeline
        augment.transforms[0] = [step for step in plain if 'scale' in step]
        augment.transforms[1] = [dict(type='RandomFlip', prob=prob) for prob in flips]
        settings = dict(self.config.tta_model, module=self.model, **tta_model)
        with MODELS.switch_scope_and_registry(self.scope) as models:
            model = models.build(settings)
        return model.test_step(self.sample([read, augment]))[0]


@pytest.fixture(autouse=True)
def own_scope() -> Iterator[None]:
    """Leave no default scope to other tests."""
    with DefaultScope.overwrite_default_scope('mmengine'):
        yield


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('tta') / 'data')


SEGMENTATION = {
    'slide': (UPERNET, dict(crop_size=(48, 48), stride=(32, 32))),
    'whole': (UPERNET, dict(mode='whole')),
    'mask2former': (MASK2FORMER, {}),
}


@pytest.fixture(
    scope='module',
    params=['slide', 'whole', pytest.param('mask2former', marks=pytest.mark.slow)],
)
def segmentor(request: pytest.FixtureRequest, data: Path) -> Case:
    name, test_cfg = SEGMENTATION[request.param]
    return Case(name, data, data.parent, **test_cfg)


def labels(sample: SegDataSample) -> Tensor:
    return sample.pred_sem_seg.data.squeeze(0)


def test_one_view_of_a_segmentor_is_plain_inference(segmentor: Case) -> None:
    plain, alone = segmentor.plain(), segmentor.augmented(flips=(0.0,))
    assert labels(plain).shape == SIZE and plain.seg_logits.data[0].std() > 0
    assert torch.equal(labels(alone), labels(plain))
    assert torch.equal(alone.seg_logits.data, plain.seg_logits.data)
    assert torch.equal(alone.gt_sem_seg.data, plain.gt_sem_seg.data)


def test_images_smaller_than_a_crop_are_tested_whole(
    data: Path, tmp_path: Path
) -> None:
    """As those of aspect over 4, whose shorter side stays below the crop; here 37 pixels of 48."""
    small = Case(UPERNET, data, tmp_path, crop_size=(48, 48), stride=(32, 32))
    resize = small.config.test_dataloader.dataset.pipeline[1]
    resize.update(scale=(100, 37), keep_ratio=False)
    result = small.plain()
    assert labels(result).shape == SIZE and result.seg_logits.data.isfinite().all()
    batch = small.sample(small.config.test_dataloader.dataset.pipeline)
    assert batch['inputs'][0].shape == (3, 37, 100)


def test_a_flipped_view_is_turned_back_before_it_is_merged(segmentor: Case) -> None:
    """The second view is the plain result of the mirrored image, mirrored again."""
    plain = segmentor.plain()
    dataset = segmentor.config.test_dataloader.dataset
    batch = segmentor.sample(dataset.pipeline)
    batch['inputs'][0] = batch['inputs'][0].flip(-1)
    with torch.no_grad():
        mirrored = segmentor.model.test_step(batch)[0].seg_logits.data.flip(-1)
    scores = [plain.seg_logits.data, mirrored]
    if segmentor.config.tta_model.type == 'SegTTAModel':
        scores = [score.softmax(0) for score in scores]
    merged = labels(segmentor.augmented(flips=(0.0, 1.0)))
    assert torch.equal(merged, sum(scores).argmax(0))


@pytest.fixture(scope='module')
def detector(data: Path) -> Case:
    return Case(DINO, data, data.parent)


def lenient() -> ConfigDict:
    """Merges no two boxes."""
    return ConfigDict(nms=dict(type='nms', iou_threshold=1.0), max_per_img=300)


def by_score(sample: SegDataSample) -> tuple[Tensor, Tensor, Tensor]:
    actual = sample.pred_instances
    order = actual.scores.argsort(descending=True, stable=True)
    return actual.bboxes[order], actual.scores[order], actual.labels[order]


def test_one_view_of_a_detector_is_plain_inference(detector: Case) -> None:
    """With a threshold of 1 nothing overlaps enough to be merged."""
    plain = by_score(detector.plain())
    alone = by_score(detector.augmented(flips=(0.0,), tta_cfg=lenient()))
    assert len(plain[0]) == 10
    for given, expected in zip(alone, plain, strict=True):
        torch.testing.assert_close(given, expected, rtol=0, atol=1e-5)


def test_views_of_a_detector_are_merged_by_nms(detector: Case) -> None:
    """With the threshold of the config: greedily by score, within a class."""
    boxes, scores, classes = by_score(detector.plain())
    threshold = detector.config.tta_model.tta_cfg.nms.iou_threshold
    selected: list[int] = []
    for index in range(len(scores)):
        rivals = [rival for rival in selected if classes[rival] == classes[index]]
        if all(overlap(boxes[index], boxes[rival]) <= threshold for rival in rivals):
            selected.append(index)
    merged = by_score(detector.augmented(flips=(0.0,)))
    torch.testing.assert_close(merged[0], boxes[selected], rtol=0, atol=1e-4)
    assert torch.equal(merged[2], classes[selected])


def overlap(a: Tensor, b: Tensor) -> float:
    sides = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0)
    areas = [(box[2:] - box[:2]).prod() for box in (a, b)]
    return float(sides.prod() / (sum(areas) - sides.prod()))


def test_boxes_of_a_flipped_view_are_turned_back(detector: Case) -> None:
    """A flipped view alone: the boxes that plain inference finds in the mirrored picture."""
    with_flip = by_score(detector.augmented(flips=(1.0,), tta_cfg=lenient()))
    batch = detector.sample(detector.config.test_dataloader.dataset.pipeline)
    batch['inputs'][0] = batch['inputs'][0].flip(-1)
    with torch.no_grad():
        boxes, scores, _ = by_score(detector.model.test_step(batch)[0])
    x0, y0, x1, y1 = boxes.unbind(1)
    mirrored = torch.stack([WIDTH - x1, y0, WIDTH - x0, y1], 1)
    torch.testing.assert_close(with_flip[1], scores, rtol=0, atol=1e-5)
    torch.testing.assert_close(with_flip[0], mirrored, rtol=0, atol=1e-3)
