_base_ = './default_runtime.py'

default_scope = 'mmdet'
visualizer = dict(
    type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
