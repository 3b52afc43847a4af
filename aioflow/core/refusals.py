"""The part of asyncio's loop protocol that cannot be durable, each method naming what to use instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aioflow.errors import NotDurable

__all__ = ["RefusingLoop"]

_ACTIVITY: Final = "activity(), which may do I/O"
_DRIVEN: Final = "await; the worker runs the loop"


def _refuse(name: str, instead: str) -> Any:
    def refused(*_args: object, **_kwargs: object) -> Any:
        raise NotDurable(f"loop.{name}() cannot be replayed; in a workflow use {instead}")

    refused.__name__ = name
    refused.__qualname__ = f"WorkflowLoop.{name}"
    refused.__doc__ = f"Refused: raises ``NotDurable``, naming {instead}."
    return refused


class RefusingLoop(asyncio.AbstractEventLoop):
    """A loop that refuses everything; what is durable is added by its subclass."""

    run_forever: Any = _refuse("run_forever", _DRIVEN)
    run_until_complete: Any = _refuse("run_until_complete", _DRIVEN)
    stop: Any = _refuse("stop", "return from handle()")
    close: Any = _refuse("close", "return from handle()")
    set_debug: Any = _refuse("set_debug", "the settings of the worker")
    set_exception_handler: Any = _refuse("set_exception_handler", "try/except around the await")
    set_task_factory: Any = _refuse(
        "set_task_factory", "asyncio.create_task(): eager tasks change the order of branches"
    )
    call_soon_threadsafe: Any = _refuse("call_soon_threadsafe", "a signal, sent through the client")
    run_in_executor: Any = _refuse("run_in_executor", "activity() with a plain function, which runs in a thread")
    set_default_executor: Any = _refuse("set_default_executor", "activity() with a plain function")
    shutdown_default_executor: Any = _refuse("shutdown_default_executor", "activity() with a plain function")
    getaddrinfo: Any = _refuse("getaddrinfo", _ACTIVITY)
    getnameinfo: Any = _refuse("getnameinfo", _ACTIVITY)
    create_connection: Any = _refuse("create_connection", _ACTIVITY)
    create_server: Any = _refuse("create_server", _ACTIVITY)
    start_tls: Any = _refuse("start_tls", _ACTIVITY)
    sendfile: Any = _refuse("sendfile", _ACTIVITY)
    create_unix_connection: Any = _refuse("create_unix_connection", _ACTIVITY)
    create_unix_server: Any = _refuse("create_unix_server", _ACTIVITY)
    connect_accepted_socket: Any = _refuse("connect_accepted_socket", _ACTIVITY)
    create_datagram_endpoint: Any = _refuse("create_datagram_endpoint", _ACTIVITY)
    connect_read_pipe: Any = _refuse("connect_read_pipe", _ACTIVITY)
    connect_write_pipe: Any = _refuse("connect_write_pipe", _ACTIVITY)
    subprocess_shell: Any = _refuse("subprocess_shell", _ACTIVITY)
    subprocess_exec: Any = _refuse("subprocess_exec", _ACTIVITY)
    add_reader: Any = _refuse("add_reader", _ACTIVITY)
    remove_reader: Any = _refuse("remove_reader", _ACTIVITY)
    add_writer: Any = _refuse("add_writer", _ACTIVITY)
    remove_writer: Any = _refuse("remove_writer", _ACTIVITY)
    sock_recv: Any = _refuse("sock_recv", _ACTIVITY)
    sock_recv_into: Any = _refuse("sock_recv_into", _ACTIVITY)
    sock_recvfrom: Any = _refuse("sock_recvfrom", _ACTIVITY)
    sock_recvfrom_into: Any = _refuse("sock_recvfrom_into", _ACTIVITY)
    sock_sendall: Any = _refuse("sock_sendall", _ACTIVITY)
    sock_sendto: Any = _refuse("sock_sendto", _ACTIVITY)
    sock_connect: Any = _refuse("sock_connect", _ACTIVITY)
    sock_accept: Any = _refuse("sock_accept", _ACTIVITY)
    sock_sendfile: Any = _refuse("sock_sendfile", _ACTIVITY)
    add_signal_handler: Any = _refuse("add_signal_handler", "a method decorated with @signal")
    remove_signal_handler: Any = _refuse("remove_signal_handler", "a method decorated with @signal")


def refuse_the_rest(loop_type: type[asyncio.AbstractEventLoop]) -> None:
    """Refuse what a later Python adds to the protocol, instead of its ``NotImplementedError``."""
    for name in dir(asyncio.AbstractEventLoop):
        inherited: Callable[..., object] = getattr(asyncio.AbstractEventLoop, name)
        if not name.startswith("_") and getattr(loop_type, name) is inherited:
            setattr(loop_type, name, _refuse(name, _ACTIVITY))
