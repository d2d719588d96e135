"""Becomes a program that ends with the process that started it, also if that one is killed.

Arguments: the number of that process, the user to run as (or nothing), the program and its own.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Change the user, ask to be told of the parent's death, and become the program."""
    parent, user, *program = sys.argv[1:]
    if user:
        import pwd  # noqa: PLC0415 - there are systems without

        number = pwd.getpwnam(user).pw_uid
        os.setreuid(number, number)
    if sys.platform == "linux":
        # After the change of user, which would undo it. PostgreSQL ends at once on this signal.
        # Whoever runs the tests in the background may ignore it, and programs inherit that.
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 - the arguments are those of the tests


if __name__ == "__main__":
    main()
