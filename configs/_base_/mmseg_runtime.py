_base_ = './mmdet_runtime.py'
default_scope = 'mmseg'
default_hooks = dict(visualization=dict(type='SegVisualizationHook'))
visualizer = dict(type='SegLocalVisualizer')
