"""Failures: exceptions as data, so that they outlive processes, deploys and the classes they were."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from aioflow.core.payload import MAX_PAYLOAD, Payload, frame, unframe
from aioflow.core.plain import clip, plain, plain_attributes
from aioflow.errors import ApplicationError, DecodeError, EncodeError, PayloadTooLarge, RemoteError

MAX_NODES: Final = 64
MAX_DEPTH: Final = 24
MAX_MESSAGE: Final = 8_000
MAX_TRACEBACK: Final = 12_000
# Trying again gives the same value, so it gives the same error.
_NEVER_RETRIED: Final = (EncodeError, PayloadTooLarge)
_ROOTS: Final = (BaseException, object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception as data.

    ``type`` is the class name, or the ``type`` that an `ApplicationError` was given; ``bases`` the names of
    all its classes, by which retry policies match. ``details`` is a JSON value, ``cause`` what it was raised
    ``from``, ``context`` what was being handled when it was raised, ``errors`` the members of an exception
    group, ``next_retry_delay`` in seconds.
    """

    type: str
    message: str = ""
    details: Any = None
    non_retryable: bool = False
    next_retry_delay: float | None = None
    traceback: str = ""
    bases: tuple[str, ...] = ()
    cause: Failure | None = None
    context: Failure | None = None
    errors: tuple[Failure, ...] = ()

    @classmethod
    def of(cls, exc: BaseException) -> Failure:
        """An exception as data. Never raises, whatever the exception does; what is too large is clipped."""
        return _Reader().read(exc, 0)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    def chain(self) -> Iterator[Failure]:
        """This failure, its cause, the cause of that, and so on."""
        node: Failure | None = self
        while node is not None:
            yield node
            node = node.cause

    def to_payload(self, *, limit: int = MAX_PAYLOAD) -> Payload:
        """The failure as a payload; one over the limit loses its tracebacks, then all but its message."""
        shrink: Callable[[Failure], Failure]
        for shrink in (_whole, _without_tracebacks, _bare):
            text = to_json(_to_data(shrink(self)), inf_nan_mode="constants")
            if len(text) < limit:
                break
        return frame(text, what="a failure", limit=max(limit, MAX_PAYLOAD))

    @classmethod
    def from_payload(cls, payload: Payload) -> Failure:
        """The failure of a payload; raises `DecodeError`."""
        what = "a stored failure"
        try:
            return _from_data(from_json(unframe(payload, what)))
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise DecodeError(f"{what} cannot be read: {type(exc).__name__}: {exc}") from exc

    def to_error(self) -> RemoteError:
        """An exception to raise: the chain is on ``__cause__``, members of a group in ``errors``."""
        error = RemoteError(
            self.message,
            type=self.type,
            details=self.details,
            traceback=self.traceback,
            non_retryable=self.non_retryable,
            errors=tuple(member.to_error() for member in self.errors),
        )
        if self.cause is not None:
            error.__cause__ = self.cause.to_error()
        elif self.context is not None:
            error.__context__ = self.context.to_error()
        return error


# -- reading exceptions ---------------------------------------------------------------------------


class _Reader:
    """Reads one exception with its causes and members; each only once, and not too many."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def read(self, exc: BaseException, depth: int) -> Failure:
        """An exception as data; every part is read on its own, so that a broken one costs only itself."""
        self.seen.add(id(exc))
        own = isinstance(exc, ApplicationError | RemoteError)
        named = _try(lambda: exc.type if own else None, None)  # type: ignore[attr-defined]  # own has one
        name = named if isinstance(named, str) and named else type(exc).__name__
        members: list[BaseException] = list(exc.exceptions) if isinstance(exc, BaseExceptionGroup) else []
        errors = tuple(self.read(one, depth + 1) for one in members if self.wanted(one, depth))
        if isinstance(exc, RemoteError):
            remote = [one for one in exc.errors if self.wanted(one, depth)]
            errors = tuple(self.read(one, depth + 1) for one in remote)
        return Failure(
            type=clip(name, 300),
            message=clip(_try(lambda: _message(exc), "(the text of this exception cannot be read)"), MAX_MESSAGE),
            details=_try(lambda: _details(exc), None),
            non_retryable=_try(lambda: _final(exc, 0), False),
            next_retry_delay=_try(lambda: _delay(exc), None),
            traceback=clip(_try(lambda: _traceback(exc), ""), MAX_TRACEBACK),
            bases=tuple(clip(one.__name__, 300) for one in type(exc).__mro__[:MAX_DEPTH] if one not in _ROOTS),
            cause=self.maybe(exc.__cause__, depth),
            context=None if exc.__suppress_context__ else self.maybe(exc.__context__, depth),
            errors=errors,
        )

    def maybe(self, exc: BaseException | None, depth: int) -> Failure | None:
        """An exception as data, if there is one that is wanted."""
        return self.read(exc, depth + 1) if exc is not None and self.wanted(exc, depth) else None

    def wanted(self, exc: BaseException, depth: int) -> bool:
        """Whether an exception is new and within the limits."""
        return id(exc) not in self.seen and depth < MAX_DEPTH and len(self.seen) < MAX_NODES


def _try(read: Callable[[], Any], otherwise: Any) -> Any:
    """What ``read`` gives, unless the exception it looks at raises itself."""
    try:
        return read()
    except Exception:
        return otherwise


def _message(exc: BaseException) -> str:
    if isinstance(exc, BaseExceptionGroup):
        return str(exc.message)  # without the count that its str adds
    return str(exc.message) if isinstance(exc, RemoteError) else str(exc)


def _details(exc: BaseException) -> Any:
    if isinstance(exc, ApplicationError | RemoteError):
        return plain(exc.details)
    if isinstance(exc, ValidationError):
        return plain(exc.errors(include_url=False, include_context=False, include_input=False))
    return plain_attributes(exc)


def _final(exc: BaseException, depth: int) -> bool:
    """Whether it says, or one that it was raised from says, that trying again is of no use."""
    if isinstance(exc, _NEVER_RETRIED) or getattr(exc, "non_retryable", False) is True:
        return True
    if depth > MAX_DEPTH:
        return False
    members = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
    if any(_final(one, depth + 1) for one in members):
        return True
    return exc.__cause__ is not None and _final(exc.__cause__, depth + 1)


def _delay(exc: BaseException) -> float | None:
    for _ in range(MAX_DEPTH):
        delay = getattr(exc, "next_retry_delay", None)
        if isinstance(delay, int | float) and not isinstance(delay, bool):
            return float(delay) if isfinite(delay) and delay >= 0 else None
        if exc.__cause__ is None:
            return None
        exc = exc.__cause__
    return None


def _traceback(exc: BaseException) -> str:
    if isinstance(exc, RemoteError):
        return exc.traceback
    if exc.__traceback__ is None:
        return ""
    shown = traceback.TracebackException(type(exc), exc, exc.__traceback__, limit=-30, compact=True)
    return "".join(shown.format(chain=False))


# -- as data --------------------------------------------------------------------------------------


def _to_data(failure: Failure) -> dict[str, Any]:
    """The fields that say something, by name."""
    data: dict[str, Any] = {"type": failure.type}
    for name in ("message", "details", "non_retryable", "next_retry_delay", "traceback", "bases"):
        value = getattr(failure, name)
        if value or (name in ("details", "next_retry_delay") and value is not None):
            data[name] = value
    for name, linked in (("cause", failure.cause), ("context", failure.context)):
        if linked is not None:
            data[name] = _to_data(linked)
    if failure.errors:
        data["errors"] = [_to_data(one) for one in failure.errors]
    return data


def _from_data(data: dict[str, Any]) -> Failure:
    """A failure of its fields; ones that a newer version added are passed over."""
    delay = data.get("next_retry_delay")
    return Failure(
        type=_text(data["type"]),
        message=_text(data.get("message", "")),
        details=data.get("details"),
        non_retryable=data.get("non_retryable") is True,
        next_retry_delay=None if delay is None else float(delay),
        traceback=_text(data.get("traceback", "")),
        bases=tuple(map(_text, data.get("bases", ()))),
        cause=_maybe_from(data.get("cause")),
        context=_maybe_from(data.get("context")),
        errors=tuple(map(_from_data, data.get("errors", ()))),
    )


def _maybe_from(data: dict[str, Any] | None) -> Failure | None:
    return None if data is None else _from_data(data)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _whole(failure: Failure) -> Failure:
    return failure


def _without_tracebacks(failure: Failure) -> Failure:
    return replace(
        failure,
        traceback="",
        cause=None if failure.cause is None else _without_tracebacks(failure.cause),
        context=None,
        errors=tuple(map(_without_tracebacks, failure.errors)),
    )


def _bare(failure: Failure) -> Failure:
    """What fits everywhere."""
    return Failure(
        type=failure.type,
        message=clip(failure.message, 1_000),
        non_retryable=failure.non_retryable,
        next_retry_delay=failure.next_retry_delay,
        bases=failure.bases,
    )
