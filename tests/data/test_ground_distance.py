"""Positions in metres: where distances come from, and the angles and maps that they give."""

import json
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from torch import Tensor

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.vit import GROUND
from rope_dense.data.ground import GroundDistance, file_distance
from rope_dense.data.images import band_files

ARCH = dict(embed_dims=32, depth=2, num_heads=2)
VIT = dict(arch=ARCH, img_size=64, layer_scale_init_value=1.0, with_cls_token=False)
ROPES = [dict(type='AxialRoPE', theta=100.0), dict(type='MixedRoPE', theta=10.0)]
NORMALISED = [
    dict(type='AxialRoPE', coordinates=coordinates)
    for coordinates in (
        dict(offset=1.0, reference=4),  # as EVA-02 and Perception Encoder
        dict(type='centres', rescale=2.0),  # as DINOv3
        dict(type='centres', normalize='max'),
        dict(type='corners'),
    )
]


def angles_of(model: RoPEViT, image: Tensor, *distances: float) -> Tensor:
    """Of the last block, [B, H, W, h or 1, P]."""
    setattr(image, GROUND, torch.tensor(distances))
    model(image)
    tokens = torch.empty(len(image), 1, 32)
    height, width = image.shape[-2:]
    grid = height // 16, width // 16
    angles = model.blocks[-1].attn.rope(tokens, grid).angles
    return angles.unflatten(-3, grid)


@pytest.mark.parametrize('rope', ROPES + NORMALISED)
def test_places_on_the_ground_have_the_same_angles_at_any_resolution(rope: dict):
    model = RoPEViT(**VIT, rope=rope, ground_distance=0.2).eval()
    coarse = angles_of(model, torch.rand(1, 3, 96, 128), 0.3)
    fine = angles_of(model, torch.rand(1, 3, 192, 256), 0.15)
    # The centre of a coarse token is that of 2 x 2 fine ones.
    mean = F.avg_pool2d(fine[0].permute(2, 3, 0, 1), 2).permute(2, 3, 0, 1)
    torch.testing.assert_close(mean, coarse[0], rtol=1e-4, atol=1e-5)
    # Steps are as long as tokens are on the ground.
    own = angles_of(model, torch.rand(1, 3, 96, 128), 0.2)
    step, longer = own[0, 1, 1] - own[0, 0, 0], coarse[0, 1, 1] - coarse[0, 0, 0]
    torch.testing.assert_close(1.5 * step, longer, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('rope', ROPES + NORMALISED)
def test_images_of_the_training_have_the_angles_of_positions_in_patches(rope: dict):
    image = torch.rand(1, 3, 64, 64)
    model = RoPEViT(**VIT, rope=rope, ground_distance=0.2).train()
    rope['coordinates'] = dict(rope.get('coordinates', {}), rescale=None)
    plain = RoPEViT(**VIT, rope=rope)
    plain.load_state_dict(model.state_dict())
    found = angles_of(model, image, 0.2)
    torch.testing.assert_close(found[0], angles_of(plain, image))


@pytest.mark.parametrize('rope', ROPES)
def test_a_batch_of_several_distances_is_its_images_alone(rope: dict):
    model = RoPEViT(**VIT, rope=rope, ground_distance=0.2, with_cp=True).train()
    for block in model.blocks:  # so that positions matter
        block.attn.qkv.weight.data.mul_(20)
    plain = RoPEViT(**VIT, rope=rope)
    plain.load_state_dict(model.state_dict())
    images = torch.rand(2, 3, 64, 96)
    setattr(images, GROUND, torch.tensor([0.2, 0.6]))
    (both,) = model(images)
    for index, distance in enumerate((0.2, 0.6)):
        image = images[index : index + 1].clone()
        setattr(image, GROUND, torch.tensor([distance]))
        (alone,) = model(image)
        torch.testing.assert_close(both[index : index + 1], alone)
    (other,) = plain(images)
    torch.testing.assert_close(both[0], other[0])
    assert (both[1] - other[1]).abs().max() > 1e-3
    (both,) = model(images)
    both.square().sum().backward()  # blocks are recomputed
    assert all(param.grad is not None for param in model.parameters())


def test_what_has_no_distance_is_refused():
    model = RoPEViT(**VIT, ground_distance=0.2)
    with pytest.raises(ValueError, match='these images have none of their own'):
        model(torch.rand(1, 3, 64, 64))
    with pytest.raises(ValueError, match='leave window_block_indexes out'):
        RoPEViT(**VIT, window_block_indexes=(0,), ground_distance=0.2)


def test_the_distance_of_an_image(tmp_path: Path):
    rasterio = pytest.importorskip('rasterio')
    path = str(tmp_path / 'a.tif')
    profile = dict(driver='GTiff', width=4, height=4, count=1, dtype='uint8')
    place = rasterio.Affine(0.5, 0, 0, 0, -0.5, 0)
    with rasterio.open(path, 'w', **profile, crs='EPSG:32632', transform=place) as file:
        file.write(np.zeros((1, 4, 4), np.uint8))

    def distance(step: GroundDistance, path: str, **results: object) -> float:
        return step.transform(dict(img_path=path, **results))['ground_distance']

    assert distance(GroundDistance(), path) == pytest.approx(0.5)
    half = distance(GroundDistance(), path, scale_factor=(2.0, 2.0))
    assert half == pytest.approx(0.25)
    images = [dict(file_name='a.tif', gsd=0.1), dict(file_name='b.tif')]
    listing = tmp_path / 'labels.json'
    listing.write_text(json.dumps(dict(images=images)))
    coco = [[str(listing), str(tmp_path)]]
    assert distance(GroundDistance(coco), path) == 0.1
    plain = str(tmp_path / 'b.tif')
    with rasterio.open(plain, 'w', **profile) as file:
        file.write(np.zeros((1, 4, 4), np.uint8))
    assert distance(GroundDistance(default=0.7), plain) == 0.7
    with pytest.raises(ValueError, match=r'b\.tif: no distance on the ground: give'):
        distance(GroundDistance(coco), plain)
    with patch.object(band_files, 'find_spec', return_value=None):
        with pytest.raises(ValueError, match='rasterio'):
            file_distance(f'{path}f')
        assert file_distance(f'{path}.png') is None
    listing.write_text(json.dumps(dict(images=[dict(images[0], gsd=0)])))
    said = r'labels\.json, image .*/a\.tif: gsd in metres must be .* got 0'
    with pytest.raises(ValueError, match=said):
        GroundDistance(coco)
    listing.unlink()
    with pytest.raises(FileNotFoundError):
        GroundDistance(coco)
    assert distance(GroundDistance(coco, 0.7), path) == pytest.approx(0.5)


def test_images_of_one_name_in_the_folders_of_own_data(tmp_path: Path):
    for place, distance in (('east', 0.1), ('west', '0.4'), ('north', False)):
        (tmp_path / place).mkdir()
        image = dict(file_name='sub/a.png', GSD=distance)
        listing = tmp_path / f'{place}.json'
        listing.write_text(json.dumps(dict(images=[image])))
    places = ('east', 'west', 'north', 'gone')
    coco = [[f'{tmp_path}/{place}.json', f'{tmp_path}/{place}'] for place in places]
    step = GroundDistance(coco, default=0.7)
    found = [step.find(tmp_path / place / 'sub/a.png') for place in places]
    assert found == [0.1, 0.4, None, None]
    (tmp_path / 'link').symlink_to(tmp_path / 'west')
    assert step.find(tmp_path / 'link/sub/a.png') == 0.4


@pytest.mark.parametrize('mode', ['whole', 'slide'])
def test_a_segmentor_trains_and_predicts_in_metres(mode: str):
    """The distances go from samples to the backbone; crops of a sliding window have none."""
    head = dict(in_channels=32, channels=8, num_classes=2, num_convs=1)
    settings = dict(
        type='mmseg.EncoderDecoder',
        data_preprocessor=dict(
            type='ChannelSegDataPreProcessor',
            size=(64, 64),
            test_cfg=dict(size_divisor=16),
        ),
        backbone=dict(type='RoPEViT', ground_distance=0.2, **VIT),
        decode_head=dict(type='mmseg.FCNHead', norm_cfg=dict(type='BN'), **head),
        test_cfg=Config(dict(mode=mode, crop_size=(32, 32), stride=(32, 32))),
    )
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(settings)

    def batch() -> dict:
        samples = []
        for distance in (0.2, 0.4):
            shapes = dict(img_shape=(64, 64), ori_shape=(64, 64))
            sample = SegDataSample(metainfo=dict(shapes, ground_distance=distance))
            labels = torch.zeros(1, 64, 64, dtype=torch.long)
            sample.gt_sem_seg = PixelData(data=labels)
            samples.append(sample)
        return dict(inputs=[torch.zeros(3, 64, 64)] * 2, data_samples=samples)

    losses = model(**model.data_preprocessor(batch(), True), mode='loss')
    assert torch.isfinite(losses['decode.loss_ce'])
    ground, _ = model.backbone.blocks[0].attn.rope.ground
    torch.testing.assert_close(ground, torch.tensor([1.0, 2.0]))
    model.eval()
    if mode == 'whole':
        assert len(model.test_step(batch())) == 2
    else:
        with pytest.raises(ValueError, match='crops of a sliding window'):
            model.test_step(batch())
