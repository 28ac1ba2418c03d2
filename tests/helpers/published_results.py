"""The published results of the configs, as their sources print them, by the name of the config."""

from __future__ import annotations

from helpers.grid import GRID
from helpers.nat_recipes import RECIPES, path_of

RESULTS: dict[str, list[float]] = {
    **{
        leaf.name: leaf.results for leaf in GRID if leaf.results
    },  # Heo et al., Tables 1 to 4
    **{path_of(key).stem: list(row[2:]) for key, row in RECIPES.items()},
    # facebookresearch/dinov3, MODEL_CARD.md
    'linear_dinov3-b_8xb2-40k_ade20k-512x512': [51.8],
    'linear_dinov3-b_8xb2-38k_nyu-416x544': [0.373],
    # tue-mps/eomt at 7bd19dd
    'eomt_dinov3-b_8xb2-177k_coco-panoptic-640x640': [53.1],
    'eomt_dinov3-l_8xb2-20k_ade20k-512x512': [59.5],
    'eomt_dinov3-l_8xb2-88k_coco-instance-1280x1280': [49.9],
    'eomt_dinov3-l_8xb2-88k_coco-instance-640x640': [45.9],
    'eomt_dinov3-l_8xb2-89k_coco-panoptic-1280x1280': [58.9],
    'eomt_dinov3-l_8xb2-89k_coco-panoptic-640x640': [56.8],
    # tue-mps/pmt at 54d73c9
    'pmt_dinov3-l_8xb2-20k_ade20k-512x512': [58.5],
    'pmt_dinov3-l_8xb2-88k_coco-instance-1280x1280': [49.0],
    'pmt_dinov3-l_8xb2-88k_coco-instance-640x640': [45.4],
    'pmt_dinov3-l_8xb2-89k_coco-panoptic-1280x1280': [58.1],
    'pmt_dinov3-l_8xb2-89k_coco-panoptic-640x640': [56.1],
    'pmt_dinov3-s_8xb2-89k_coco-panoptic-640x640': [45.3],
    # Intellindust-AI-Lab/DEIMv2 and EdgeCrafter
    'deimv2-s_vit-t_4xb8-488k_coco': [50.9],
    'deimv2-m_vit-t-plus_4xb8-377k_coco': [53.0],
    'deimv2-l_dinov3-s_4xb8-251k_coco': [56.0],
    'deimv2-x_dinov3-s-plus_4xb8-214k_coco': [57.8],
    'ecdet-s_ecvit-t_4xb8-274k_coco': [51.7],
    'ecdet-m_ecvit-t-plus_4xb8-229k_coco': [54.3],
    'ecdet-l_ecvit-s_4xb8-185k_coco': [57.0],
    'ecdet-x_ecvit-s-plus_4xb8-185k_coco': [57.9],
    'ecseg-s_ecvit-t_4xb8-274k_coco': [43.0],
    'ecseg-m_ecvit-t-plus_4xb8-274k_coco': [45.2],
    'ecseg-l_ecvit-s_4xb8-185k_coco': [47.1],
    'ecseg-x_ecvit-s-plus_4xb8-185k_coco': [48.4],
}
