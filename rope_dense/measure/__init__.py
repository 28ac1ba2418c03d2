"""Measure a model: accuracy by image size, speed and multiply-adds.

Others import::

    benchmark: benchmark
    choose: choose_scaling
    evaluate: evaluate
    evaluator: Evaluator
    plot: COLOURS, MARKERS, draw_resolutions, open_axes, plot_resolutions, shown
    position_bias: biases, position_bias
    results: ResultFile, ResultRow, Results, cell_text, csv_text, headline, json_text,
        print_row, read_results, rows_csv_text
    scores: RECALLS
    settings: FROM_CONFIG, Setting, combine
    speed: count_operations, noise, profile_call, profiled
    sweep: Sweep, evaluate_sizes
"""
