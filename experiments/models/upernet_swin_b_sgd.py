"""UperNet with Swin-B (window 7, ImageNet-1k), trained with the schedule's SGD as the paper states for all models."""

stock = "swin/swin-base-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
