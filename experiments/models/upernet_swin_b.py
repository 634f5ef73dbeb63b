"""UperNet with Swin-B (window 7, ImageNet-1k): the stock config and its AdamW recipe, with the schedule's length.

The paper states SGD for all models; `upernet_swin_b_sgd` is that reading.
"""

stock = "swin/swin-base-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"

_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=0.00006, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        custom_keys=dict(absolute_pos_embed=_no_decay, relative_position_bias_table=_no_decay, norm=_no_decay)
    ),
)
# Without `end`, the decay lasts to the schedule's last iteration.
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-6, begin=0, end=1500, by_epoch=False),
    dict(type="PolyLR", eta_min=0.0, power=1.0, begin=1500, by_epoch=False),
]
