"""Settings: flag over variable over pyproject.toml over default, and errors that name the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aioflow.cli.settings import Settings, find_pyproject, load_settings
from aioflow.errors import ConfigurationError


def load(folder: Path, flags: dict[str, Any] | None = None, table: str | None = None, **environ: str) -> Settings:
    if table is not None:
        (folder / "pyproject.toml").write_text(f"[tool.aioflow]\n{table}\n")
    return load_settings(flags, environ=environ, directory=folder)


def test_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.database_url is None
    assert settings.namespace == "default"
    assert settings.queues == ()
    assert settings.modules == ()
    assert settings.concurrency == 200
    assert settings.log_level == "info"
    assert settings.log_format is None
    assert settings.data_dir.is_absolute()
    with pytest.raises(ConfigurationError, match="AIOFLOW_DATABASE_URL"):
        settings.require_database_url()


def test_flag_over_variable_over_file_over_default(tmp_path: Path) -> None:
    table = 'concurrency = 1\nnamespace = "file"\nqueues = ["a", "b"]'
    assert load(tmp_path, table=table).concurrency == 1
    assert load(tmp_path, AIOFLOW_CONCURRENCY="2").concurrency == 2
    assert load(tmp_path, {"concurrency": 3}, AIOFLOW_CONCURRENCY="2").concurrency == 3
    settings = load(tmp_path, {"concurrency": None, "queues": ()}, AIOFLOW_NAMESPACE="variable")
    assert (settings.concurrency, settings.namespace, settings.queues) == (1, "variable", ("a", "b"))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgres+asyncpg"])
def test_every_spelling_of_a_postgres_url(tmp_path: Path, scheme: str) -> None:
    rest = "ann:p%40ss@db:5433/orders?sslmode=require"
    assert load(tmp_path, AIOFLOW_DATABASE_URL=f"{scheme}://{rest}").require_database_url() == f"postgresql://{rest}"
    assert load(tmp_path, AIOFLOW_LISTEN_URL=f"{scheme}://{rest}").listen_url == f"postgresql://{rest}"


@pytest.mark.parametrize("value", ["mysql://u:hush@h/d", "hush", "postgresql:/hush"])
def test_another_url_is_refused_without_showing_it(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match="AIOFLOW_DATABASE_URL") as caught:
        load(tmp_path, AIOFLOW_DATABASE_URL=value)
    assert "hush" not in str(caught.value)


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("postgres://u:p@h/d\n")
    assert load(tmp_path, AIOFLOW_DATABASE_URL_FILE=str(secret)).database_url == "postgresql://u:p@h/d"
    both = load(tmp_path, AIOFLOW_DATABASE_URL="postgres://v@h/d", AIOFLOW_DATABASE_URL_FILE=str(secret))
    assert both.database_url == "postgresql://v@h/d"
    with pytest.raises(ConfigurationError, match="AIOFLOW_DATABASE_URL_FILE"):
        load(tmp_path, AIOFLOW_DATABASE_URL_FILE=str(tmp_path / "missing"))


@pytest.mark.parametrize("text", ["orders, mail", "orders mail", "orders,mail,orders,"])
def test_lists(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, AIOFLOW_QUEUES=text).queues == ("orders", "mail")
    assert load(tmp_path, AIOFLOW_QUEUE=text).queues == ("orders", "mail")
    assert load(tmp_path, {"queues": ("orders", "mail")}).queues == ("orders", "mail")
    assert load(tmp_path, table='app = "shop.flows"').modules == ("shop.flows",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "many"),
        ("concurrency", "0"),
        ("concurrency", "-1"),
        ("pool_size", "1.5"),
        ("drain_grace", "-1"),
        ("drain_grace", "inf"),
        ("log_level", "loud"),
        ("log_format", "xml"),
        ("queues", ","),
        ("namespace", " "),
    ],
)
def test_a_value_that_does_not_fit_names_its_variable(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"AIOFLOW_{name.upper()}"):
        load(tmp_path, **{f"AIOFLOW_{name.upper()}": value})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("concurrency = true", "concurrency"),
        ("queues = 1", "queues"),
        ("drain-grace = true", "drain-grace"),
        ("queues = [1]", "queues"),
        ("namespace = 1", "namespace"),
        ('colour = "blue"', "colour"),
        ("concurrency = ", "cannot read"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        load(tmp_path, table=table)
    assert "pyproject.toml" in str(caught.value)


def test_dashes_levels_and_an_empty_variable(tmp_path: Path) -> None:
    settings = load(tmp_path, table='log-level = "DEBUG"\ndata-dir = "~/here"', AIOFLOW_LOG_LEVEL="")
    assert settings.log_level == "debug"
    assert settings.data_dir == Path("~/here").expanduser()


def test_the_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.aioflow]\nconcurrency = 7\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert find_pyproject(inner) == tmp_path / "pyproject.toml"
    assert load(inner).concurrency == 7


def test_the_data_folder_of_a_user_and_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert load(tmp_path).data_dir == tmp_path / "aioflow"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert load(tmp_path).data_dir == Path("/var/lib/aioflow")


def test_the_frameworks_variable_counts_in_development_only(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgres://h/d"}
    assert load_settings(environ=environ, directory=tmp_path).database_url is None
    settings = load_settings(environ=environ, directory=tmp_path, development=True)
    assert settings.database_url == "postgresql://h/d"
