"""The error a user can act on: one message that says where, what was expected, what came and how to mend it."""

import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TextIO

EXIT_USER_ERROR = 2
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as the shell says of programs whose reader has gone

P = ParamSpec("P")


class UserError(ValueError):
    """Bad input of any kind: a declaration, a data set, a checkpoint, a missing file.

    The message is complete by itself; command lines print it without a traceback and exit with code 2.
    """


def reports_user_errors(main: Callable[P, int | None]) -> Callable[P, int]:
    """Make a command of its ``main``: errors of the user are messages, and a reader that has gone ends it quietly.

    A ``UserError`` becomes its message on standard error and exit code 2. Where output goes to a program that has
    stopped reading, as ``head`` does, the exit code is 141.
    """

    @wraps(main)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs) or 0
            except UserError as error:
                print(f"error: {error}", file=sys.stderr)
                return EXIT_USER_ERROR
            finally:
                sys.stdout.flush()  # here, where a closed pipe can be caught, and not when the interpreter ends
        except BrokenPipeError:
            if not output_is_unread():
                raise
            _give_up_output()
            return EXIT_BROKEN_PIPE

    return wrapped


def output_is_unread() -> bool:
    """Whether standard output or standard error is a pipe whose reader has gone."""
    return any(_has_no_reader(stream) for stream in (sys.stdout, sys.stderr))


def _has_no_reader(stream: TextIO) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # a stream without a file, such as one that a test captures
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _give_up_output() -> None:
    """Send what is still unwritten nowhere; the interpreter would complain about it in the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if _has_no_reader(stream):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
