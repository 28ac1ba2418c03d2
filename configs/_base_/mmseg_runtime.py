_base_ = './default_runtime.py'

default_scope = 'mmseg'
visualizer = dict(
    type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
