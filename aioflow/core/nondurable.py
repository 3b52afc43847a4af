"""What cannot be replayed, by name, and the durable helper to use instead. Tables only, without imports."""

from __future__ import annotations

from typing import Final

__all__ = [
    "AUDITED",
    "DIVERTED",
    "DIVERTED_WITHOUT_ARGUMENT",
    "METHODS",
    "WRAPPED",
    "WRAPPED_WITHOUT_ARGUMENT",
]

_NOW: Final = "now()"
_RNG: Final = "rng()"
_UUID: Final = "uuid4()"
_TIMER: Final = "timer()"
_ACTIVITY: Final = "activity()"

_CLOCKS: Final = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
    "clock_gettime",
    "clock_gettime_ns",
)
_RANDOM: Final = [
    "betavariate",
    "binomialvariate",
    "choice",
    "choices",
    "expovariate",
    "gammavariate",
    "gauss",
    "getrandbits",
    "getstate",
    "lognormvariate",
    "normalvariate",
    "paretovariate",
    "randbytes",
    "randint",
    "random",
    "randrange",
    "sample",
    "seed",
    "setstate",
    "shuffle",
    "triangular",
    "uniform",
    "vonmisesvariate",
    "weibullvariate",
]

WRAPPED: Final[dict[str, dict[str, str]]] = {
    "time": {**dict.fromkeys(_CLOCKS, _NOW), "sleep": _TIMER},
    "random": dict.fromkeys(_RANDOM, _RNG),
    "os": {"urandom": f"{_RNG} or {_UUID}", "getrandom": f"{_RNG} or {_UUID}"},
}
"""Functions replaced in their module, with the helper. ``scan_code()`` finds the names bound before."""

WRAPPED_WITHOUT_ARGUMENT: Final = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
"""Functions of ``time`` that read the clock only when the argument at this place is missing or ``None``."""

DIVERTED: Final[tuple[tuple[str, str, str], ...]] = (
    ("uuid", "uuid1", _UUID),
    ("uuid", "uuid4", _UUID),
    ("secrets", "token_bytes", _RNG),
    ("secrets", "token_hex", _RNG),
    ("secrets", "token_urlsafe", _RNG),
    ("random:SystemRandom", "random", _RNG),
    ("random:SystemRandom", "getrandbits", _RNG),
    ("random:SystemRandom", "randbytes", _RNG),
    ("threading:Thread", "start", _ACTIVITY),
    ("concurrent.futures.thread:ThreadPoolExecutor", "submit", _ACTIVITY),
    ("asyncio.threads", "to_thread", "activity() with a plain function"),
    ("asyncio.runners", "run", "await"),
    ("asyncio.runners:Runner", "run", "await"),
    ("asyncio.tasks", "run_coroutine_threadsafe", "a signal"),
)
"""Python functions whose own code is replaced: names bound early are caught as well."""

DIVERTED_WITHOUT_ARGUMENT: Final[tuple[tuple[str, str, str, int], ...]] = (("random:Random", "__init__", _RNG, 1),)
"""The same, but durable when the argument at this place is given: ``Random(seed)``."""

METHODS: Final = {
    ("datetime.datetime", "now"): _NOW,
    ("datetime.datetime", "utcnow"): _NOW,
    ("datetime.datetime", "today"): _NOW,
    ("datetime.date", "today"): "now().date()",
}
"""Methods of C types, by type and name: cannot be replaced, only found in the code."""

_IO_EVENTS: Final = [
    "open",
    "os.chflags",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.getxattr",
    "os.kill",
    "os.killpg",
    "os.link",
    "os.listdir",
    "os.listxattr",
    "os.lockf",
    "os.mkdir",
    "os.posix_spawn",
    "os.putenv",
    "os.remove",
    "os.removexattr",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.setxattr",
    "os.spawn",
    "os.startfile",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.unsetenv",
    "os.utime",
    "os.walk",
    "os.fwalk",
    "pathlib.Path.glob",
    "pathlib.Path.rglob",
    "glob.glob",
    "shutil.chown",
    "shutil.copyfile",
    "shutil.copymode",
    "shutil.copystat",
    "shutil.copytree",
    "shutil.make_archive",
    "shutil.move",
    "shutil.rmtree",
    "shutil.unpack_archive",
    "tempfile.mkdtemp",
    "tempfile.mkstemp",
    "mmap.__new__",
    "fcntl.flock",
    "fcntl.lockf",
    "pty.spawn",
    "subprocess.Popen",
    "socket.__new__",
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyaddr",
    "socket.gethostbyname",
    "socket.gethostname",
    "socket.getnameinfo",
    "socket.sendmsg",
    "socket.sendto",
    "urllib.Request",
    "http.client.connect",
    "ftplib.connect",
    "imaplib.open",
    "poplib.connect",
    "smtplib.connect",
    "sqlite3.connect",
    "_thread.start_new_thread",
    "_thread.start_joinable_thread",
    "webbrowser.open",
]

AUDITED: Final[dict[str, str]] = {**dict.fromkeys(_IO_EVENTS, _ACTIVITY), "time.sleep": _TIMER}
"""Audit events that mean I/O, with the helper."""
