"""Rehearsals: a few iterations of every declared run, so that its cost and its mistakes are known beforehand."""
