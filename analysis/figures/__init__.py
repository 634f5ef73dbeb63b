"""The figures: which runs they need, what is computed for them, and how it is drawn.

``python -m analysis.figures`` is the command. Loading, computing and drawing are apart: a drawing function gets axes
and a table (or arrays) and reads no file.
"""
