"""HRNetV2-W18 with a fully convolutional head: the stock config, unchanged. Stands for W48 on CamVid."""

stock = "hrnet/fcn_hr18_4xb2-40k_cityscapes-512x1024.py"
