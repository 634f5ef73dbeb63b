"""What a trained model says about single pixels: features, predictions and drawn pairs, stored for the figures.

``python -m pne.extract`` is the command. `archives` needs no torch, so that the analysis can read what was
stored.
"""
