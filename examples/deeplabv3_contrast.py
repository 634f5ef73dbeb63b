# DeepLabV3 of mmsegmentation with the contrastive loss: any stock or own config can stand in _base_.
_base_ = __import__("mmseg").__path__[0] + "/.mim/configs/deeplabv3/deeplabv3_r50-d8_4xb2-40k_cityscapes-512x1024.py"
custom_imports = dict(imports=["pne.heads"])
model = dict(
    decode_head=dict(
        type="ContrastHead",
        base="ASPPHead",  # the stock head, whose other arguments stay as they are
        contrast=dict(loss=dict(type="PNELoss", temperature=1.0), weight=1.3),
    )
)
