"""EncNet with a dilated ResNet-34 of a quarter of the width, for SyntheticStreet: stands for ResNet-101."""

stock = "encnet/encnet_r50-d8_4xb2-40k_cityscapes-512x1024.py"
model = dict(
    pretrained=None,
    backbone=dict(depth=34, stem_channels=16, base_channels=16),
    decode_head=dict(in_channels=[32, 64, 128], channels=64, num_codes=16),
    auxiliary_head=dict(in_channels=64, channels=32),
)
