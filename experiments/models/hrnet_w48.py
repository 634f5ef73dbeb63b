"""HRNetV2-W48 with a fully convolutional head: the stock config, unchanged."""

stock = "hrnet/fcn_hr48_4xb2-40k_cityscapes-512x1024.py"
