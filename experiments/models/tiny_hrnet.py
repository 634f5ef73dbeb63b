"""HRNetV2 with branches of 8 to 64 channels and a fully convolutional head, for SyntheticStreet: stands for W48."""

stock = "hrnet/fcn_hr18_4xb2-40k_cityscapes-512x1024.py"
_widths = (8, 16, 32, 64)
model = dict(
    pretrained=None,
    backbone=dict(
        extra=dict(
            stage1=dict(num_blocks=(1,), num_channels=(16,)),
            stage2=dict(num_blocks=(1, 1), num_channels=_widths[:2]),
            stage3=dict(num_modules=1, num_blocks=(1, 1, 1), num_channels=_widths[:3]),
            stage4=dict(num_modules=1, num_blocks=(1, 1, 1, 1), num_channels=_widths),
        )
    ),
    decode_head=dict(in_channels=list(_widths), channels=sum(_widths)),
)
