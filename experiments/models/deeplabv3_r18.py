"""DeepLabV3 with a dilated ResNet-18, output stride 8: the stock config, unchanged. Stands for ResNet-50 on CamVid."""

stock = "deeplabv3/deeplabv3_r18-d8_4xb2-80k_cityscapes-512x1024.py"
