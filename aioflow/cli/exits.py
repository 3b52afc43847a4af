"""Exit codes of the commands, and which error ends with which."""

from __future__ import annotations

from enum import IntEnum

from aioflow import errors

__all__ = ["ExitCode", "exit_code"]


class ExitCode(IntEnum):
    """What a script can tell from ``$?``."""

    OK = 0
    FAILED = 1
    """An error, or the workflow whose result was asked for did not complete."""
    USAGE = 2
    """A flag, argument or setting does not fit."""
    NOT_FOUND = 3
    CONFLICT = 4
    """It exists already, is closed, or the request key was used before."""
    TIMEOUT = 5
    """The time to wait was over; nothing is wrong with the workflow."""
    UNREACHABLE = 6
    """The database does not answer."""
    SCHEMA = 7
    """The database needs `aioflow migrate`, or a newer aioflow."""
    NONDETERMINISM = 8
    """A replay found code that does not fit the history."""
    INTERRUPTED = 130


_CODES: tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...] = (
    ((errors.ConfigurationError, errors.ArgumentError, errors.InvalidInstanceId), ExitCode.USAGE),
    (
        (
            errors.InstanceNotFound,
            errors.UnknownNamespace,
            errors.UnknownQuery,
            errors.UnknownSignal,
            errors.UnknownWorkflow,
        ),
        ExitCode.NOT_FOUND,
    ),
    (
        (
            errors.InstanceAlreadyExists,
            errors.InstanceClosed,
            errors.InstanceClosing,
            errors.InstanceFull,
            errors.RequestConflict,
        ),
        ExitCode.CONFLICT,
    ),
    ((errors.ResultTimeout,), ExitCode.TIMEOUT),
    ((errors.DatabaseUnavailable,), ExitCode.UNREACHABLE),
    ((errors.SchemaNotMigrated, errors.SchemaTooNew, errors.MigrationError), ExitCode.SCHEMA),
    ((errors.NondeterminismError,), ExitCode.NONDETERMINISM),
    ((KeyboardInterrupt,), ExitCode.INTERRUPTED),
)


def exit_code(error: BaseException) -> ExitCode:
    """The exit code for an error; `ExitCode.FAILED` for one without a code of its own."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.FAILED)
