"""DeepLabV3 with a dilated ResNet-50, output stride 8: the stock config, unchanged."""

stock = "deeplabv3/deeplabv3_r50-d8_4xb2-40k_cityscapes-512x1024.py"
