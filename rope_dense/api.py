"""The commands from Python: train on own data, load a trained model, predict, evaluate, export.

    model = rope_dense.train('detection', data_root='data/own', epochs=20)
    model = rope_dense.load('work_dirs/detection')     # later: a run, a file, a name on the hub
    samples = model(['street.jpg', array, picture])    # mmdet's or mmseg's data samples
    rows = model.evaluate(['640', '960'])
    model.export('model.onnx')

The commands call the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .predict.thresholds import DEFAULT

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.structures import BaseDataElement
    from PIL.Image import Image
    from torch import nn

    from .measure.results import ResultRow

    Place = str | Path
    Picture = Place | np.ndarray | Image


def train(
    task: Place,
    *,
    work_dir: Place | None = None,
    resume: bool | str | Path = False,
    load_from: Place | None = None,
    amp: str | None = None,
    with_cp: bool = False,
    compile: bool = False,
    fsdp: bool = False,
    launcher: str = 'none',
    overwrite: bool = False,
    cfg_options: Mapping[str, object] | None = None,
    **own: object,
) -> Model:
    """Train on own data by the recipe of configs/own/TASK.py; see docs/own_data.md.

    Args:
        task: 'depth', 'detection', 'instance', 'oriented', 'realtime', 'realtime_masks' or
            'semantic'; or the folder of a run, to continue it or to train by its settings.
        work_dir: of the run; by default work_dirs/TASK, or the folder of the run.
        resume: a checkpoint to continue from; True for the last one in the work folder.
        load_from: a checkpoint of a whole model, or a run, whose weights the training starts from.
        amp: mixed precision, 'fp16' or 'bf16'.
        with_cp: recompute the backbone's blocks in backward to save memory.
        compile: compile the backbone's blocks.
        fsdp, launcher: of several processes, see docs/training.md.
        overwrite: remove what an earlier run and its report wrote from the work folder.
        cfg_options: changes of the config by dotted keys, such as {'train_cfg.val_interval': 50}.
        own: settings of the recipe, such as ``data_root``, ``epochs`` and ``backbone``; of a run
            those that change.

    Returns:
        The model with its best weights.

    Raises:
        ValueError: a setting that this task does not have, or a value that is not allowed.
        UsageError: files or data that cannot be used, before the training begins.
    """
    from mmengine.dist import barrier

    from .project.find import recipes
    from .project.own.tasks import read_settings
    from .training import train as run_training
    from .utils.validation import check_choice

    is_recipe = str(task) in recipes() or not Path(str(task)).is_dir()
    if is_recipe:
        read_settings(task, {'data_root': '.', **own})
    check_choice('amp', amp, (None, 'fp16', 'bf16'))
    cfg = run_training(
        str(recipes()[str(task)] if is_recipe else task),
        own=own,
        cfg_options=cfg_options or {},
        work_dir=None if work_dir is None else str(work_dir),
        resume='auto' if resume is True else str(resume) if resume else None,
        load_from=None if load_from is None else str(load_from),
        amp=amp,
        with_cp=with_cp,
        compile=compile,
        fsdp=fsdp,
        launcher=launcher,
        overwrite=overwrite,
    )
    barrier()  # of several processes one writes the best weights
    return load(cfg.work_dir)


def load(
    source: Place, checkpoint: Place | None = None, device: str | None = None
) -> Model:
    """A trained model.

    Args:
        source: folder of a run, a config file, or a model of the Hugging Face hub: its name
            (hf-hub:owner/name) or a folder with its files.
        checkpoint: of a config file: a file, an address or a name on the hub. None for a config of
            several tasks (``SharedBackbone``), which names theirs.
        device: cpu, cuda, cuda:1 ...; by default a GPU if there is one.

    Raises:
        UsageError, CheckpointError: a file is missing, cannot be read, or does not fit.
    """
    from mmengine.device import get_device
    from mmengine.registry import DefaultScope

    from .predict.inferencer import build_inferencer
    from .project.contents import used_loaders
    from .project.load import find_model

    cfg, weights = find_model(source, checkpoint)
    used_loaders(cfg, 'test')
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        inferencer = build_inferencer(cfg, weights, device or get_device())
    return Model(cfg, weights, inferencer)


class Model:
    """A trained detector, segmentor or depth model.

    Attributes:
        cfg: its config.
        config, checkpoint: names of their files; no checkpoint of several tasks.
        classes: names; none of several tasks.
        inferencer: mmdet's ``DetInferencer`` or mmseg's ``MMSegInferencer``.
    """

    def __init__(self, cfg: Config, checkpoint: str | None, inferencer: Any) -> None:
        self.cfg = cfg
        self.config = str(cfg.filename)
        self.checkpoint = checkpoint
        self.inferencer = inferencer
        self.classes = tuple(inferencer.model.dataset_meta['classes'])

    @property
    def model(self) -> nn.Module:
        """The detector or segmentor as a module, with its weights, for hooks and parts of it."""
        return self.inferencer.model

    @property
    def backbone(self) -> nn.Module:
        """The backbone of ``model``: images [B, C, H, W], normalised, to a tuple of maps."""
        return self.model.get_submodule('backbone')

    def __call__(
        self, images: Picture | Sequence[Picture], batch: int = 1
    ) -> list[BaseDataElement]:
        """Predict images: mmdet's or mmseg's data samples, one for each.

        Of several tasks it is a sample with the sample of each task by its name.

        Args:
            images: paths, pictures of Pillow, or arrays [H, W, 3] of blue, green and red (as
                OpenCV reads them), uint8 or floats of 0 to 255; of a model of other channels paths
                or arrays [H, W, n]; or one of these.
            batch: images at a time.

        Raises:
            ValueError: a file is missing, or no image; an array of another type or shape.
        """
        from mmengine.registry import DefaultScope

        from .data.images.sources import ImageReader
        from .predict.inferencer import predict_batch

        many: Sequence[Any] = images if isinstance(images, (list, tuple)) else [images]
        reader = ImageReader(self.cfg.test_dataloader.dataset.pipeline)
        pixels = [reader.convert(image) for image in many]
        files = [Path(x) if isinstance(x, str | Path) else None for x in many]
        with DefaultScope.overwrite_default_scope(self.cfg.default_scope):
            samples = predict_batch(self.inferencer, pixels, batch, files)
            return [sample.cpu() for sample in samples]

    def plain(
        self, sample: BaseDataElement, score: float = DEFAULT
    ) -> dict[str, np.ndarray]:
        """A prediction as numpy arrays.

        Args:
            sample: what a call returned.
            score: least score of an object, 0 to 1; ValueError for another.

        Returns:
            Of a detector boxes [n, 4] (left, top, right, bottom in pixels), or rotated ones [n, 5]
            (x, y, w, h, angle in radians), scores [n], labels [n], and masks [n, H, W] if it has
            them; of a segmentor labels [H, W]; of a depth model depth [H, W] in metres. Of a
            panoptic model, which has no scores, ids [H, W] (0 where it finds nothing), and labels
            [n] and areas [n], in pixels, of the segments with the ids 1 to n.
        """
        from .data.panoptic import panoptic_segments

        if not 0 <= score <= 1:
            raise ValueError(f'score={score}: give a number from 0 to 1')
        if 'pred_sem_seg' in sample:
            return dict(labels=sample.pred_sem_seg.data[0].numpy())
        if 'pred_depth_map' in sample:
            return dict(depth=sample.pred_depth_map.data[0].numpy())
        if 'pred_panoptic_seg' in sample:
            heads = self.inferencer.model.modules()
            heads = [head for head in heads if hasattr(head, 'num_stuff_classes')]
            count = max(head.num_classes for head in heads)
            pixels = sample.pred_panoptic_seg.sem_seg[0].numpy()
            ids, segments = panoptic_segments(pixels, range(count))
            labels = np.array([segment['category_id'] for segment in segments], int)
            areas = np.array([segment['area'] for segment in segments], int)
            return dict(ids=ids, labels=labels, areas=areas)
        found = sample.pred_instances[sample.pred_instances.scores >= score]
        names = dict(boxes='bboxes', scores='scores', labels='labels', masks='masks')
        return {name: found[key].numpy() for name, key in names.items() if key in found}

    def evaluate(self, sizes: Sequence[str] = (), **options: Any) -> list[ResultRow]:
        """Test at several image sizes, as ``rope-dense eval-resolutions``; a row for each.

        Args:
            sizes: such as '640' or '480x640'; by default the config's test size.
            options: of ``evaluate_sizes``, such as ``scaling=['linear']``; ``work_dir``.

        Raises:
            UsageError: the model has several tasks, or an option cannot be used.
        """
        from .measure.sweep import evaluate_sizes

        folder = str(options.pop('work_dir', Path(self.cfg.work_dir, 'evaluation')))
        return evaluate_sizes(
            self.config, self.checkpoint, sizes=sizes, work_dir=folder, **options
        )

    def export(self, out: Place, **options: Any) -> Path:
        """Write the model as ONNX or ``torch.export``, as ``rope-dense export``.

        Args:
            out: NAME.onnx or NAME.pt2.
            options: of ``export_model``, such as ``size='640x640'``, ``dtype='fp16'``.
        """
        from .export.trained import export_model

        export_model(self.config, self.checkpoint, out, **options)
        return Path(out)
