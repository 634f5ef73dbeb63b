"""DeepLabV3 with a dilated ResNet-18 of a quarter of the width, for SyntheticStreet: stands for ResNet-50."""

stock = "deeplabv3/deeplabv3_r18-d8_4xb2-80k_cityscapes-512x1024.py"
model = dict(
    pretrained=None,
    backbone=dict(stem_channels=16, base_channels=16),
    decode_head=dict(in_channels=128, channels=64, dilations=(1, 2, 3, 4)),
    auxiliary_head=dict(in_channels=64, channels=32),
)
