"""Labels of every annotation format: read into the same types, written as one canonical COCO file.

``folders.find_labels`` recognises a data set, a reader for each format (``yolo``, ``voc``, ...)
gives its images with their objects, and ``canonical`` writes what mmdet and the evaluator see.
"""
