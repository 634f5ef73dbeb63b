"""UperNet with a Swin transformer of 16 channels and windows of 4, for SyntheticStreet: stands for Swin-B.

AdamW as in the stock recipe, at a rate for random initial weights.
"""

stock = "swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
model = dict(
    backbone=dict(embed_dims=16, depths=[2, 2, 2, 2], num_heads=[1, 2, 4, 8], window_size=4, drop_path_rate=0.0),
    decode_head=dict(in_channels=[16, 32, 64, 128], channels=32),
    auxiliary_head=dict(in_channels=64, channels=32),
)
_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=0.002, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        custom_keys=dict(absolute_pos_embed=_no_decay, relative_position_bias_table=_no_decay, norm=_no_decay)
    ),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.1, begin=0, end=10, by_epoch=False),
    dict(type="PolyLR", eta_min=0.0, power=1.0, begin=10, by_epoch=False),
]
