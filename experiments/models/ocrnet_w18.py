"""OCRNet with HRNetV2-W18, a cascade of two heads: the stock config, unchanged. Stands for W48 on CamVid."""

stock = "ocrnet/ocrnet_hr18_4xb2-40k_cityscapes-512x1024.py"
