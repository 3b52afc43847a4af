"""Settings of the command line: flag, then ``AIOFLOW_*`` variable, then ``[tool.aioflow]``, then default.

Every setting is one field of `Settings`. Its variable is ``AIOFLOW_`` and the field's name in upper case; its
key in the user's pyproject.toml is the field's name, with ``-`` or ``_``. For each variable there is one with
``_FILE`` behind it that names a file with the value, for secrets.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from aioflow.errors import ConfigurationError

__all__ = ["Settings", "find_pyproject", "load_settings"]

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["json", "console"]
Parse = Callable[[str, Any], Any]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name}: a text that is not empty is needed, not {value!r}")
    return value.strip()


def _names(name: str, value: Any) -> tuple[str, ...]:
    """A list of names: from a variable divided by commas or blanks, from a file a TOML array or a text."""
    if isinstance(value, str):
        value = re.split(r"[,\s]+", value.strip())
    if not isinstance(value, list | tuple):
        raise ConfigurationError(f"{name}: a list of names is needed, not {value!r}")
    if not (found := tuple(dict.fromkeys(_text(name, item) for item in value if item != ""))):
        raise ConfigurationError(f"{name}: at least one name is needed")
    return found


def _positive(name: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigurationError(f"{name}: a whole number from 1 is needed, not {value!r}")
    return number


def _seconds(name: str, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ConfigurationError(f"{name}: a number of seconds is needed, not {value!r}")
    return number


def _one_of(*choices: str) -> Parse:
    def parse(name: str, value: Any) -> str:
        if (chosen := str(value).strip().lower()) not in choices:
            raise ConfigurationError(f"{name}: one of {', '.join(choices)} is needed, not {value!r}")
        return chosen

    return parse


def _path(name: str, value: Any) -> Path:
    return Path(_text(name, value)).expanduser()


def _url(name: str, value: Any) -> str:
    """A Postgres URL as the driver takes it; the forms of SQLAlchemy and Heroku are accepted too."""
    scheme, mark, rest = _text(name, value).partition("://")
    if not mark or scheme not in {"postgresql", "postgres", "postgresql+asyncpg", "postgres+asyncpg"}:
        raise ConfigurationError(  # without the value: it may hold a password
            f"{name}: a URL like postgresql://user:password@host:5432/database is needed"
        )
    return f"postgresql://{rest}"


def _default_data_dir() -> Path:
    """Where `aioflow dev` keeps its server: root's home is closed to the user Postgres may have to run as."""
    if os.name != "nt" and os.geteuid() == 0:
        return Path("/var/lib/aioflow")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "aioflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the commands run with.

    ``database_url`` is None when nothing names one (`aioflow dev` then starts a server of its own in
    ``data_dir``); ``listen_url`` is a direct connection beside a pooled ``database_url``; ``modules`` are
    imported to find workflows and activities; ``concurrency`` is how many tasks a worker runs at once;
    ``pool_size`` its connections; ``queues`` are those it serves, and none means those its modules name;
    ``drain_grace`` is how many seconds running activities get to end when it is told to stop.
    """

    database_url: Annotated[str | None, _url] = None
    listen_url: Annotated[str | None, _url] = None
    namespace: Annotated[str, _text] = "default"
    queues: Annotated[tuple[str, ...], _names] = ()
    modules: Annotated[tuple[str, ...], _names] = ()
    concurrency: Annotated[int, _positive] = 200
    pool_size: Annotated[int, _positive] = 10
    drain_grace: Annotated[float, _seconds] = 30.0
    log_level: Annotated[LogLevel, _one_of("debug", "info", "warning", "error", "critical")] = "info"
    log_format: Annotated[LogFormat | None, _one_of("json", "console")] = None
    data_dir: Annotated[Path, _path] = field(default_factory=_default_data_dir)

    def require_database_url(self) -> str:
        """The database's URL, or `ConfigurationError` with the ways to give one."""
        if self.database_url is None:
            raise ConfigurationError(
                "no database: give --database-url, set AIOFLOW_DATABASE_URL, or put database_url under "
                "[tool.aioflow] in pyproject.toml; `aioflow dev` needs none"
            )
        return self.database_url

    def require_modules(self) -> tuple[str, ...]:
        """Modules with the code, or `ConfigurationError` with the ways to name them."""
        if not self.modules:
            raise ConfigurationError(
                "no code: name a module on the command line, set AIOFLOW_MODULES, or put modules under [tool.aioflow] "
                "in pyproject.toml"
            )
        return self.modules


_ALIASES: Mapping[str, tuple[str, ...]] = {"queues": ("queue",), "modules": ("module", "app")}
"""Other spellings of a field's name, in variables and in the file."""


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
    development: bool = False,
) -> Settings:
    """Resolve every setting.

    Args:
        flags: values given on the command line by field name; None and empty tuples count as not given.
        environ: the environment's variables; the process's own by default.
        directory: where to look for pyproject.toml, upward; the working directory by default.
        development: take ``DATABASE_URL`` too, last, as many frameworks set it.

    Raises:
        ConfigurationError: a value does not fit (the text names its source), a key of ``[tool.aioflow]`` is
            unknown, or a file cannot be read.
    """
    environ = os.environ if environ is None else environ
    given = {name: value for name, value in (flags or {}).items() if value is not None and value != ()}
    table = _read_table(find_pyproject(directory or Path.cwd()))
    chosen: dict[str, Any] = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        parse: Parse = hint.__metadata__[0]
        found = _from_flags(name, given) or _from_environ(name, environ) or table.get(name)
        if found is not None:
            source, value = found
            chosen[name] = parse(source, value)
    if development and "database_url" not in chosen and environ.get("DATABASE_URL"):
        chosen["database_url"] = _url("DATABASE_URL", environ["DATABASE_URL"])
    return Settings(**chosen)


def find_pyproject(directory: Path) -> Path | None:
    """The nearest pyproject.toml with a ``[tool.aioflow]`` table, from ``directory`` upward."""
    for folder in (directory.absolute(), *directory.absolute().parents):
        file = folder / "pyproject.toml"
        if file.is_file() and "aioflow" in _parse_toml(file).get("tool", {}):
            return file
    return None


def _from_flags(name: str, given: Mapping[str, Any]) -> tuple[str, Any] | None:
    return (f"--{name.replace('_', '-')}", given[name]) if name in given else None


def _from_environ(name: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    for spelling in (name, *_ALIASES.get(name, ())):
        variable = f"AIOFLOW_{spelling.upper()}"
        if value := environ.get(variable):
            return variable, value
        if file := environ.get(f"{variable}_FILE"):
            try:
                return f"{variable}_FILE", Path(file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{variable}_FILE: cannot read {file}: {error}") from error
    return None


def _read_table(file: Path | None) -> dict[str, tuple[str, Any]]:
    """The keys of ``[tool.aioflow]`` by field name, each with where it stands for error texts."""
    if file is None:
        return {}
    table = _parse_toml(file)["tool"]["aioflow"]
    if not isinstance(table, dict):
        raise ConfigurationError(f"{file}: [tool.aioflow] is not a table")
    known = {setting.name: setting.name for setting in fields(Settings)}
    known |= {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
    read: dict[str, tuple[str, Any]] = {}
    for key, value in table.items():
        if (name := known.get(key.replace("-", "_"))) is None:
            raise ConfigurationError(f"{file}: [tool.aioflow] has no {key!r}; known are {', '.join(sorted(known))}")
        read[name] = (f"{file}: {key}", value)
    return read


def _parse_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
