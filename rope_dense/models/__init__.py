"""Necks, heads, detectors, segmentors and classifiers for the backbones.

Each is in a module of its own: they need different packages.

Others import::

    channel_preprocessors: AnyChannels
    deim.detector: DEIM
    deim.masks: in_image
    deim.oriented: OrientedDEIMHead
    deim.oriented_boxes: corners_of
    deim.predictions: in_pixels, take
    deim.queries: ANCHOR_BORDER, grid_anchors
    deim.recipe: set_stages, with_masks
    detectron2: NO_WEIGHT_DECAY, RoPESwin, RoPEViT, get_rope_lr_decay_rate
    eomt.annealing: find_eomt, load_eomt
    eomt.detector: EoMTDetector
    eomt.segmentor: EoMTSegmentor
    fine_features: FineFeatures
    maps: cell_centres, size_of
    shared_backbone: FEATURES, SharedBackbone, TaskBackbone, share_parts
    window_attention: averaging_matrix
"""
