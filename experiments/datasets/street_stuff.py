"""SyntheticStreet with 16 classes, several of them close relatives: stands for COCO-Stuff."""

_base_ = "street_city.py"
num_classes = 16
train_dataloader = dict(dataset=dict(type="StreetStuffDataset"))
val_dataloader = dict(dataset=dict(type="StreetStuffDataset"))
