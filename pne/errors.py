"""The error a user can act on: one message that says where, what was expected, what came and how to mend it."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

EXIT_USER_ERROR = 2

P = ParamSpec("P")


class UserError(ValueError):
    """Bad input of any kind: a declaration, a data set, a checkpoint, a missing file.

    The message is complete by itself; command lines print it without a traceback and exit with code 2.
    """


def reports_user_errors(main: Callable[P, int | None]) -> Callable[P, int]:
    """Turn a ``UserError`` of a command's ``main`` into its message on standard error and exit code 2."""

    @wraps(main)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return main(*args, **kwargs) or 0
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_USER_ERROR

    return wrapped
