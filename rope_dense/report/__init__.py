"""The report of a model: where it fails, as one HTML page.

Others import::

    compare: compare_runs
    curves: read_summary
    samples: browse
    write: report, report_training, write_report
"""
