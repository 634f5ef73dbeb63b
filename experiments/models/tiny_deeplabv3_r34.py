"""DeepLabV3 with a dilated ResNet-34 of a quarter of the width, for SyntheticStreet: stands for ResNet-101."""

_base_ = "tiny_deeplabv3_r18.py"
model = dict(backbone=dict(depth=34))
