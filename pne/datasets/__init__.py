"""Data sets. ``import pne.datasets.registered`` registers them with mmsegmentation; this imports nothing heavy.

Commands: ``python -m pne.datasets.synthetic_street`` draws the embedded data, ``python -m pne.datasets.prepare``
converts downloads, ``python -m pne.datasets.doctor`` examines a data set before it is trained on.
"""
