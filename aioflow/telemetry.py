"""Logs: structured events with ids and no payloads, and a logger for workflows that is silent on replay.

Who has configured structlog gets our events through it; else they go to the standard library's loggers under
``aioflow``, where a service finds them beside its own. structlog is imported with the first event.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

from aioflow.core.current import current
from aioflow.core.guard import allowed

__all__ = ["Logger", "configure", "get_logger", "workflow_logger"]

Level = Literal["debug", "info", "warning", "error", "critical"]
Format = Literal["json", "console"]


class Logger:
    """A named logger of events: ``log.info("run_closed", instance_id=…, run_id=…)``."""

    __slots__ = ("_bound", "_name")

    def __init__(self, name: str, **bound: Any) -> None:
        self._name, self._bound = name, bound

    def bind(self, **values: Any) -> Logger:
        """The same logger with more values on every event."""
        return type(self)(self._name, **self._bound | values)

    def debug(self, event: str, **values: Any) -> None:
        """An event for those who look for a fault."""
        self._emit("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """An event of the normal course."""
        self._emit("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """An event somebody should look at some time."""
        self._emit("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """An event somebody has to look at."""
        self._emit("error", event, values)

    def critical(self, event: str, **values: Any) -> None:
        """The process cannot go on."""
        self._emit("critical", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """An error with the traceback of the exception being handled."""
        self._emit("error", event, {"exc_info": True} | values)

    def _emit(self, level: Level, event: str, values: dict[str, Any]) -> None:
        import structlog

        values = {"logger": self._name} | self._bound | values
        if structlog.is_configured():
            getattr(structlog.get_logger(self._name), level)(event, **values)
            return
        standard = logging.getLogger(self._name)
        number = logging.getLevelName(level.upper())
        if standard.isEnabledFor(number):
            del values["logger"]
            exc_info = values.pop("exc_info", None)
            said = "".join(f" {name}={value!r}" for name, value in values.items())
            standard.log(number, "%s%s", event, said, exc_info=exc_info)


class _WorkflowLogger(Logger):
    """Adds the ids of the running workflow, and says nothing while its history is replayed."""

    __slots__ = ()

    def _emit(self, level: Level, event: str, values: dict[str, Any]) -> None:
        context = current()
        if context is None:
            super()._emit(level, event, values)
            return
        if context.replaying:
            return
        ids = {
            "workflow": context.definition.name,
            "instance_id": context.key.instance_id,
            "run_id": str(context.run_id),
        }
        with allowed():
            super()._emit(level, event, ids | values)


def get_logger(name: str) -> Logger:
    """The logger of this name; ours begin with ``aioflow.``."""
    return Logger(name)


workflow_logger = _WorkflowLogger("aioflow.workflow")
"""For use in workflows: carries their ids, and is silent on replay, so that each event is told once."""


def configure(level: str = "info", format: str | None = None) -> None:  # the word of the settings
    """Send events of this level and above to stderr, as ``json`` or for people (``console``, default on a terminal).

    For processes that are ours, such as ``aioflow worker``. The standard library's loggers are set to match.
    """
    import structlog

    if format is None:
        format = "console" if sys.stderr.isatty() else "json"
    number = logging.getLevelName(level.upper())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if format == "console"
        else structlog.processors.JSONRenderer(default=str)
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if format == "json":
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler], force=True)
