"""Sizes, checks of arguments, remembered results, locks, atomic writes: for every other package.

Others import::

    config_parts: LOADERS, all_datasets, keeps_ratio, kind, leaf_datasets, nodes,
        pipelines, size_steps, with_steps, without_labels
    configs: CONFIGS, DOCS, values_in
    disk: BEST, HUB, LAST, TRAINING, WEB, atomic_folder, atomic_write,
        atomic_write_text, is_disk_error, is_interrupt, is_remote,
        named_disk_errors, object_in, read_json_lines, read_json_or_empty
    errors: UsageError, message_of, usage_errors
    imports: installation_advice, leave_out_import_noise, missing_packages
    journal: Journal, JournalError, damaged_error, remove_journal
    lock: exclusive
    memo: LastResult, is_tracing, memo, on_host
    process: end_with_parent, peak_rss
    progress: bar, is_first_here, progress, show_elapsed
    results: ForeignFileError, HOME, Results, Write, read_records, results_below
    sizes: ImageSize, Size, larger, smaller, tile_starts
    validation: check_choice, checked_indexes, checked_integer, checked_number,
        checked_settings, checked_size, did_you_mean, is_integer, parse_size, refuse
"""
