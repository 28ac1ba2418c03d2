"""Export to torch.export (.pt2) and ONNX (.onnx), with dynamic batch, height and width."""

from .exporter import export

__all__ = ['export']
