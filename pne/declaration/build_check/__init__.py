"""All that a run consists of is built once, without data, so that a wrong key ends it before its first iteration.

mmengine hands the keys of a config to constructors and finds a misspelt one there. `check_buildable` says which key of
one run's config it is, before that run trains; `find_mistakes` says which declarations of a whole track are to blame.
"""

from pne.declaration.build_check.blame import Problem
from pne.declaration.build_check.parts import check_buildable, find_problem
from pne.declaration.build_check.track import find_mistakes

__all__ = ["Problem", "check_buildable", "find_mistakes", "find_problem"]
