"""Every error aioflow raises, in one tree.

AioflowError
├── ConfigurationError            settings, DSN, missing extra
│   └── EmbeddedPostgresError     no binaries found, or the server did not start
├── DefinitionError               a workflow, activity or handler is declared wrongly
├── PayloadError
│   ├── EncodeError               a value cannot be stored, or its type does not fit
│   ├── DecodeError               stored bytes do not fit the type they are read as
│   └── PayloadTooLarge
├── ArgumentError                 wrong number or types of arguments for a workflow, activity or message
├── NotInWorkflow                 a durable helper was used outside a workflow
├── NotInActivity                 activity.info() and the like were used outside an activity
├── NotDurable                    something that cannot be replayed was used inside a workflow
├── WorkflowLivelock              a workflow never became quiet after one event
├── StructuralLimitExceeded       a run grew past a limit; the message says which and what to do
├── NondeterminismError           history and code disagree; the run stays open and blocked
├── WorkerExhausted               workflow code blocked too many threads of a worker; restart it
├── ClientError
│   ├── ClientClosed
│   ├── InvalidInstanceId
│   ├── InstanceNotFound
│   ├── InstanceAlreadyExists
│   ├── InstanceClosed
│   ├── InstanceClosing           retryable: the instance is about to close
│   ├── InstanceFull              retryable: too many signals wait for the instance
│   ├── UnknownNamespace
│   ├── UnknownWorkflow
│   ├── UnknownSignal
│   ├── UnknownQuery
│   ├── QueryFailed
│   ├── RequestConflict           a request key was used before with another body
│   └── ResultTimeout
├── StoreError
│   ├── DatabaseUnavailable       retryable
│   │   └── OldTimeline           the server was left behind by a failover
│   ├── SchemaNotMigrated
│   ├── SchemaTooNew
│   └── MigrationError
├── WorkflowError                 how a run ended, at its caller
│   ├── WorkflowFailed
│   ├── WorkflowCancelled
│   ├── WorkflowTerminated
│   └── WorkflowTimedOut
├── ActivityError                 how an activity ended, in ``handle()``
│   ├── ActivityFailed
│   ├── ActivityTimedOut
│   └── ActivityCancelled
├── ApplicationError              raised by users, with details and a say in retries
└── RemoteError                   an exception of another process, as data
"""

from __future__ import annotations

from typing import Any


class AioflowError(Exception):
    """Base of every error raised by aioflow."""


# -- set-up and declaration -----------------------------------------------------------------------


class ConfigurationError(AioflowError):
    """A setting is missing or contradicts another; the message says which and what to set."""


class EmbeddedPostgresError(ConfigurationError):
    """No PostgreSQL binaries were found, or the embedded server did not start."""


class DefinitionError(AioflowError):
    """A workflow, activity or message handler is declared in a way that cannot run."""


class PayloadError(AioflowError):
    """A value could not be stored or read back."""


class EncodeError(PayloadError):
    """A value cannot be encoded, or does not fit the type hint it is stored under."""


class DecodeError(PayloadError):
    """Stored bytes cannot be read as the type hint at hand."""


class PayloadTooLarge(PayloadError):
    """An encoded value is larger than the limit (2 MiB by default)."""


class ArgumentError(AioflowError, TypeError):
    """Arguments do not fit the signature they are meant for (count, names or types)."""


class NotInWorkflow(AioflowError):
    """A durable helper was used outside a running workflow."""


class NotInActivity(AioflowError):
    """Something that belongs to a running activity was used outside of one."""


class NotDurable(AioflowError):
    """Something that cannot be replayed was used inside a workflow; the message names the helper to use."""


class WorkflowLivelock(AioflowError):
    """A workflow kept running without ever waiting for anything; the message names the place."""


class StructuralLimitExceeded(AioflowError):
    """A run grew past one of its limits. ``limit`` names it, ``value`` is what is allowed."""

    def __init__(self, limit: str, value: int) -> None:
        self.limit, self.value = limit, value
        told = (
            f"what a run gives to activities and side effects in one step may take at most {value} bytes: "
            "wait for some before starting more, pass large data by reference"
            if limit == "step_bytes"
            else f"a run may have at most {value} {limit.replace('_', ' ')}: split the work over several runs"
        )
        super().__init__(f"{told}, or raise the limit in the worker's settings")


class NondeterminismError(AioflowError):
    """History and code disagree. Nothing was written; the run stays open until fitting code appears.

    ``expected`` is what history holds, ``found`` what the code did, ``seq`` the place in history.
    """

    def __init__(self, expected: str, found: str, seq: int | None = None) -> None:
        self.expected, self.found, self.seq = expected, found, seq
        where = "" if seq is None else f" at event {seq}"
        super().__init__(f"history and code disagree{where}: expected {expected}, found {found}")


class WorkerExhausted(AioflowError):
    """Workflow code blocked more threads for good than a worker can lose; it was drained and has to be restarted."""


class ClientError(AioflowError):
    """A client call was refused; nothing was stored."""


class ClientClosed(ClientError):
    """The client was closed; runs are not affected."""


class InvalidInstanceId(ClientError, ValueError):
    """An instance id must be 1 to 255 characters of text without NUL."""


class InstanceNotFound(ClientError):
    """No instance has this id in this namespace."""


class InstanceAlreadyExists(ClientError):
    """The instance id is taken and the conflict or reuse policy refuses another run.

    ``run_id`` is the run that holds the id, None while it is only reserved.
    """

    def __init__(self, message: str, *, run_id: Any = None) -> None:
        self.run_id = run_id
        super().__init__(message)


class InstanceClosed(ClientError):
    """The instance is closed and takes no more messages."""


class InstanceClosing(ClientError):
    """The instance is about to close and takes no new messages just now; the call may be repeated."""


class InstanceFull(ClientError):
    """10,000 signals wait for the instance and its run has not taken them; the call may be repeated later."""


class UnknownNamespace(ClientError):
    """The namespace does not exist in this database."""


class UnknownWorkflow(ClientError):
    """No workflow of this name is known, to this process or to any worker seen so far."""


class UnknownSignal(ClientError):
    """The workflow has no signal of this name."""


class UnknownQuery(ClientError):
    """The workflow has no query of this name."""


class QueryFailed(ClientError):
    """The query handler raised; the original is the ``__cause__``."""


class RequestConflict(ClientError):
    """A request key was used before on this instance with another body."""


class ResultTimeout(ClientError, TimeoutError):
    """The run was still open when the time given to ``result()`` was over; the run goes on."""


class StoreError(AioflowError):
    """The database refused or could not be used."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached just now; the call may be repeated with the same request key."""


class OldTimeline(DatabaseUnavailable):
    """The server was left behind by a failover that this process has seen; nothing is read from it or written to it."""


class SchemaNotMigrated(StoreError):
    """The database has no aioflow schema, or an old one: run ``aioflow migrate``."""


class SchemaTooNew(StoreError):
    """The schema was migrated by a newer aioflow that this version must not work with."""


class MigrationError(StoreError):
    """A migration failed, or an applied one differs from the file of the same number."""


# -- outcomes -------------------------------------------------------------------------------------


class RemoteError(AioflowError):
    """An exception raised in another process, as data.

    ``type`` is the class name there, ``message`` its text, ``details`` what it carried, ``traceback`` the
    formatted text. Causes are chained as ``__cause__``; ``errors`` holds the members of an exception group.
    """

    def __init__(
        self,
        message: str = "",
        *,
        type: str = "Exception",
        details: Any = None,
        traceback: str = "",
        non_retryable: bool = False,
        errors: tuple[RemoteError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message, self.type, self.details = message, type, details
        self.traceback, self.non_retryable, self.errors = traceback, non_retryable, errors

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class _Outcome(AioflowError):
    """What closed a run or an activity; shares the shape of its cause."""

    def __init__(self, message: str = "", *, cause: RemoteError | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        if cause is not None:
            self.__cause__ = cause

    @property
    def type(self) -> str | None:
        """Class name of the original exception, None without one."""
        return self.cause.type if self.cause else None

    @property
    def message(self) -> str:
        """Text of the original exception, else of this one."""
        return self.cause.message if self.cause else str(self)

    @property
    def details(self) -> Any:
        """Details the original exception carried, None without any."""
        return self.cause.details if self.cause else None


class WorkflowError(_Outcome):
    """How a run ended when not with a result. ``instance_id`` and ``run_id`` name the run."""

    def __init__(
        self,
        message: str = "",
        *,
        cause: RemoteError | None = None,
        instance_id: str | None = None,
        run_id: Any = None,
    ) -> None:
        super().__init__(message, cause=cause)
        self.instance_id, self.run_id = instance_id, run_id


class WorkflowFailed(WorkflowError):
    """``handle()`` raised; ``type``, ``message``, ``details`` and ``cause`` describe the exception."""


class WorkflowCancelled(WorkflowError):
    """The run was cancelled and ended with ``CancelledError``."""


class WorkflowTerminated(WorkflowError):
    """The run was closed from outside without running its code."""


class WorkflowTimedOut(WorkflowError):
    """The run passed its execution or run timeout."""


class ActivityError(_Outcome):
    """How an activity ended when not with a result.

    ``activity`` is its name, ``execution_id`` the id that is stable over its retries.
    """

    def __init__(
        self,
        message: str = "",
        *,
        cause: RemoteError | None = None,
        activity: str = "",
        execution_id: Any = None,
    ) -> None:
        super().__init__(message, cause=cause)
        self.activity, self.execution_id = activity, execution_id


class ActivityFailed(ActivityError):
    """The last attempt raised and no further retry is allowed."""


class ActivityTimedOut(ActivityError):
    """A timeout ran out; ``timeout`` says which: ``start_to_close``, ``heartbeat``, …"""

    def __init__(self, message: str = "", *, timeout: str = "", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.timeout = timeout


class ActivityCancelled(ActivityError):
    """The activity was cancelled before it had an outcome."""


class ApplicationError(AioflowError):
    """Raise it in an activity or workflow to say more than a plain exception can.

    ``type`` replaces the class name in failures, ``details`` is any value JSON can hold, ``non_retryable``
    ends the retries of an activity, ``next_retry_delay`` (seconds) replaces the policy's next back-off.
    """

    def __init__(
        self,
        message: str = "",
        *,
        type: str | None = None,
        details: Any = None,
        non_retryable: bool = False,
        next_retry_delay: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.type, self.details = message, type, details
        self.non_retryable, self.next_retry_delay = non_retryable, next_retry_delay
