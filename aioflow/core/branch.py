"""Branches: the addresses of concurrent tasks inside a run, and of the commands they issue.

``handle()`` is branch ``0``; the third task it starts is ``0/3``; the second activity of that task is
``0/3:a2``. Every kind of command and the children have counters of their own, and every branch counts for
itself, so neither another order of completion nor a new step in one branch moves the addresses of the
others.
"""

from __future__ import annotations

from typing import Final, final

__all__ = ["Branch"]

_RESERVED: Final = frozenset("/:=~")


@final
class Branch:
    """One node of the branch tree: its path, and what it has issued so far."""

    __slots__ = ("_children", "_counts", "_names", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._children = 0
        self._counts: dict[str, int] = {}
        self._names: dict[str, int] | None = None

    def child(self, name: str | None = None) -> Branch:
        """The next child branch: ``0/1``, ``0/2`` …, or one with a name of its own, which edits cannot move.

        A named child does not advance the counter of the others. A name used again is numbered: ``0/=pay``,
        ``0/=pay~2``. ``ValueError`` for an empty name or one with ``/``, ``:``, ``=`` or ``~`` in it.
        """
        if name is None:
            self._children += 1
            return Branch(f"{self.path}/{self._children}")
        if not name or not _RESERVED.isdisjoint(name):
            raise ValueError(f"a branch name must not be empty nor contain any of '/:=~', got {name!r}")
        if self._names is None:
            self._names = {}
        count = self._names[name] = self._names.get(name, 0) + 1
        return Branch(f"{self.path}/={name}" if count == 1 else f"{self.path}/={name}~{count}")

    def command_id(self, kind: str) -> str:
        """The address of the next command of this kind: ``0/3:a2`` is the second ``a`` of branch ``0/3``."""
        counts = self._counts
        count = counts[kind] = counts.get(kind, 0) + 1
        return f"{self.path}:{kind}{count}"

    def next_id(self, kind: str) -> str:
        """What `command_id` will give next."""
        return f"{self.path}:{kind}{self._counts.get(kind, 0) + 1}"

    def __repr__(self) -> str:
        return f"<Branch {self.path}>"
