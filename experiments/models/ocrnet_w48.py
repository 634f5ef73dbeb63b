"""OCRNet with HRNetV2-W48, a cascade of two heads: the stock config, unchanged."""

stock = "ocrnet/ocrnet_hr48_4xb2-40k_cityscapes-512x1024.py"
