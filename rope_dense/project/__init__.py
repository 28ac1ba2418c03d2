"""Input of a command: a config with its options, weights, and the errors about them.

Others import::

    building: NAMED, build_part, building, checked_device
    checks.data: build_dataset, check_data, patch_size
    checks.recipe: paragraph_text, part_text, recipe_text
    checks.schedule: check_processes, check_schedule, training_crops, warn,
        warn_of_random_weights, warn_of_sgd
    contents: Task, angle_version, at_size, box_limit, configured_size, datasets_of,
        detects, evaluators, max_aspect_ratio, resize_steps, stored_classes, task_of,
        tile_plan, trained_size, used_loaders, visualizer_of
    convert_checkpoint: convert_checkpoint
    find: PICTURES, check_checkpoint, check_ending, check_path, find_config,
        find_files, read_written_settings, recipes
    hub: push_to_hub, save_for_hub
    hub_config: is_stored_config, registered_only
    identity: Identity, hash_of
    launch: init_rank, launch_runner, leave_group, run_test, run_training,
        should_merge, silent_log_errors
    load: Options, find_model, load_config, with_data_root
    model: Colour, build_model, build_shapes, classes_and_colours, mask_numbers,
        num_things, random_model
    options: TrainingOptions, apply_training_options, enable_amp, enable_compile
    own.fit: BACKBONE
    own.settings: Given, Own
    own.tasks: Found, find_data, read_settings, stored_settings
    own.text: Text
    ready: ready
    run: Run, is_first
    weights: SelfLoadingModel, check_fetched_weights, load_tested_weights,
        patch_mmengine_reader, say_class_rows, write_backbone
"""
