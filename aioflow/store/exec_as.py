"""Become another user, tie the process to its owner's life, then execute a command.

Run as a script (``python -I -S exec_as.py IDENTITY OWNER_PID COMMAND…``) between the launcher and Postgres.
A process of its own, because code run between fork and exec of a threaded program can deadlock.

It is self-contained: nothing here may import aioflow.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

__all__ = ["NOBODY", "main"]

NOBODY: Final = 65534
"""The unprivileged user and group; Debian, Alpine, UBI and distroless all have an entry for it."""

_CLONE_NEWUSER: Final = 0x10000000
_PR_SET_PDEATHSIG: Final = 1


def main(argv: list[str]) -> None:
    """Take on the identity, bind to the owner, exec; ``argv`` is identity, owner's pid (0: none), command."""
    identity, owner, command = argv[0], int(argv[1]), argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if identity == "namespace":
        _enter_user_namespace(libc)
    elif identity == "nobody":
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if owner and sys.platform == "linux":
        _die_with(libc, owner)
    os.execv(command[0], command)


def _enter_user_namespace(libc: ctypes.CDLL) -> None:
    """Be nobody inside a new user namespace and stay the same user for every file outside it."""
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _die_with(libc: ctypes.CDLL, owner: int) -> None:
    """Ask the kernel for SIGINT (Postgres: fast shutdown) when the thread that started us is gone."""
    # After the change of identity: the kernel forgets the request on a change of credentials.
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != owner:  # it died before the request was in force
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
