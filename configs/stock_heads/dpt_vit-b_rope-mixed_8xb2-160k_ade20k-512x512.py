# DPT on ViT-B with RoPE-Mixed, ADE20K, 512 x 512, 160k iterations. No paper reports this run; its
# accuracy was not measured. Head, maps, learning rate and weight decay are from mmseg's
# dpt_vit-b16_8xb2-160k_ade20k-512x512.py: four maps without the final norm, each with its class
# token. Frequencies have no weight decay; the class token does, unlike there. (That file is not the
# base, because the onedl-* packages do not find `mmseg::`.)
_base_ = '../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(out_indices=(2, 5, 8, 11), output_prefix='cls', drop_path_rate=0.0),
    neck=None,
    decode_head=dict(
        _delete_=True,
        type='DPTHead',
        in_channels=[768, 768, 768, 768],
        in_index=[0, 1, 2, 3],
        input_transform='multiple_select',
        embed_dims=768,
        channels=256,
        post_process_channels=[96, 192, 384, 768],
        readout_type='project',
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    auxiliary_head=None,
    test_cfg=dict(_delete_=True, mode='whole'),
)
optim_wrapper = dict(
    optimizer=dict(lr=6e-5, weight_decay=0.01),
    paramwise_cfg=dict(_delete_=True, no_decay=['norm', 'frequency']),
)
