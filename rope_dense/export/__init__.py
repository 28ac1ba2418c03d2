"""Export to torch.export (.pt2) and ONNX (.onnx), with dynamic batch, height and width.

Others import::

    cases: check_file
    client: Frame
    compare: Runner, largest_difference, runners
    exporter: graph_for
    file_model: FileModel
    graphs: GRAPHS, Graph, Preprocess
    trained: export_model, push_model
"""

from .exporter import export

__all__ = ['export']
