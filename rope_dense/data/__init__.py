"""Data sets: labels, masks and depth maps of users, images, augmentation, generated pictures.

Others import::

    classes: CLASSES_FILE, CLASS_NUMBERS, Colour, IGNORED, classes_file,
        distinct_colour, find_class_numbers, lists_classes, read_classes
    convert_data: convert_data
    depth_maps: depth_lines, survey_depths
    generated: ShapesSettings, write_shapes
    generated.shape_files: ShapesSettings, write_shapes
    ground: GroundDistance, name_file
    images.band_files: BandHeader, read_band_header
    images.bands: LoadBands, drop_predictions_without_data, find_load_bands,
        no_data, picture, read_white_value
    images.copies: remove_outdated
    images.drawing: depth_picture, draw, draw_depth, draw_features, encoded
    images.headers: Header, read_header
    images.pictures: check_picture
    images.sources: ImageReader, Source, Video, find_sources, find_video,
        left_out_text, listed_sources, unreadable_sources
    labels.annotations: Rules
    labels.canonical: check_left_out, write_canonical
    labels.coco_files: load_coco
    labels.evaluated: ALL, ASKED, evaluated
    labels.files: check_parts, part_of
    labels.folders: find_labels
    labels.foreign: form_by_name
    labels.inventory: Inventory
    labels.kept: in_use, is_up_to_date
    labels.label_folder: LabelFolder
    labels.maps: DEPTH, MASKS, PairsOf, find_maps, write_pair_lists
    labels.objects: Report, printable_text
    labels.places: FileKind
    labels.splits: WORDS, copies_in, split_word
    labels.unlabelled: write_picture_list
    loading: FILES, LoadError, NamingPipeline
    mask_colours: write_labels
    mask_labels: class_numbers, label_map, mask_lines, stored_numbers, survey_masks
    panoptic: OFFSET, PANOPTIC, panoptic_content, panoptic_segments, write_ids
    rotated: CONVENTIONS, fixed_convention
    rotated_results: about_convention, dota_texts, names_of_files,
        rotated_annotation
    tiles.band_image: open_image
    tiles.dataset: TiledDataset
    tiles.detection: ROTATED_IOU, UPRIGHT_IOU, as_coco, detect, make_levels,
        suppress_duplicates
    tiles.evaluation: PixelTask, THRESHOLD, TileJoiner, TiledEvaluator, segment,
        value_type
    tiles.image_file: LABEL_FORMATS, LargeImage, geojson_text, is_on_map,
        write_raster
    tiles.pictures: draw_boxes, draw_labels
    tiles.plan: TileGrid, TilePlan, TilePredictor
    tiles.write_tiles: write_tiles
"""
