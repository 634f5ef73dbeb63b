"""EncNet with a dilated ResNet-101, output stride 8: the stock config, unchanged."""

stock = "encnet/encnet_r101-d8_4xb2-40k_cityscapes-512x1024.py"
