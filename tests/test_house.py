"""The rules of the house (docs/contributing.md): caps, floors, names, and what must not be in the code."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
PACKAGE = HOUSE / "aioflow"

FILE_LINES = 400
FUNCTION_LINES = 50
STATEMENT_LINES = 100
LONGEST_SLEEP = 0.05
FOR_EVER = 60  # seconds: a sleep that a test does not sit through, as in "until it is cancelled"

TOP_LEVEL = {"pyproject.toml", "aioflow", "tests", "benchmarks", "docs", "docker", "README.md", "LICENSE"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> list[Path]:
    """Every file of the project: tracked, or new and not ignored."""
    if shutil.which("git") is None or not (HOUSE / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in sorted(listed.stdout.split("\0")) if name and (path := HOUSE / name).is_file()]


def named(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def python(*folders: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and named(path).startswith(folders or "")]


def sql() -> list[Path]:
    return [path for path in files() if path.suffix == ".sql" and path.is_relative_to(PACKAGE)]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def nodes(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    for path in python(*folders):
        for node in ast.walk(tree(path)):
            yield f"{named(path)}:{getattr(node, 'lineno', 0)}", node


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


# Caps


def test_no_file_is_too_long() -> None:
    long = {named(path): lines(path) for path in python() if lines(path) > FILE_LINES}
    assert not long, f"over {FILE_LINES} lines; redesign: {long}"


def test_no_function_is_too_long() -> None:
    long = {
        f"{where} {node.name}": size
        for where, node in nodes()
        if isinstance(node, Function) and (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    }
    assert not long, f"over {FUNCTION_LINES} lines; redesign: {long}"


def test_no_statement_is_too_long() -> None:
    statements = [path for path in sql() if "migrations" not in path.parts]
    long = {named(path): lines(path) for path in statements if lines(path) > STATEMENT_LINES}
    assert not long, f"over {STATEMENT_LINES} lines; redesign: {long}"


# Rooms


def test_top_level_holds_only_the_known_entries() -> None:
    entries = {path.relative_to(HOUSE).parts[0] for path in files()}
    assert {entry for entry in entries if not entry.startswith(".")} <= TOP_LEVEL


def test_modules_import_only_from_lower_floors() -> None:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([program, "--no-cache"], cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_authoring_imports_no_driver_and_no_machinery() -> None:
    script = (
        "import sys; from aioflow import *; "
        "heavy = 'asyncpg uvloop anyio click rich aioflow.store aioflow.client aioflow.worker'.split(); "
        "sys.exit(' '.join(name for name in heavy if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"imported by aioflow: {done.stderr}"


def test_every_module_imports_on_its_own() -> None:
    modules = [named(path)[:-3].replace("/", ".").removesuffix(".__init__") for path in python("aioflow/")]
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [m for m in sys.modules if m.partition('.')[0] == 'aioflow']:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    command = [sys.executable, "-c", script, *(name for name in modules if not name.endswith("__main__"))]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_core_reads_no_wall_clock() -> None:
    clocks = {"now", "utcnow", "today"}
    found = [
        where
        for where, node in nodes("aioflow/core/")
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in clocks
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"datetime", "date"}
    ]
    assert not found


# Names


def exported(module: ast.Module) -> list[str] | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return None


def bound(module: ast.Module) -> set[str]:
    """Names that the statements of a module bind at its top level."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def isort_order(name: str) -> tuple[int, str]:
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


def test_every_all_is_sorted_and_true() -> None:
    wrong = []
    for path in python("aioflow/"):
        module, names = tree(path), exported(tree(path))
        if names is None or path.name == "__init__.py":
            continue
        if names != sorted(set(names), key=isort_order):
            wrong.append(f"{named(path)}: not sorted (constants, classes, the rest)")
        if missing := [name for name in names if name not in bound(module)]:
            wrong.append(f"{named(path)}: names nothing: {missing}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("face", ["aioflow", "aioflow.client", "aioflow.worker", "aioflow.testing"])
def test_the_all_of_a_face_is_sorted_and_complete(face: str) -> None:
    if importlib.util.find_spec(face) is None or not importlib.util.find_spec(face).has_location:
        pytest.skip(f"no {face} yet")
    module = importlib.import_module(face)
    names = list(module.__all__)
    assert names == sorted(set(names), key=isort_order)
    assert not [name for name in names if not hasattr(module, name)]
    public = {n for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)}
    assert public - {"annotations"} <= set(names)


# What must not be there


def test_no_pickle_and_no_evaluated_code() -> None:
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    found = []
    for where, node in nodes("aioflow/", "benchmarks/", "docs/"):
        if isinstance(node, ast.Import):
            found += [where for alias in node.names if alias.name.partition(".")[0] in banned]
        elif isinstance(node, ast.ImportFrom):
            found += [where] if (node.module or "").partition(".")[0] in banned else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [where] if node.func.id in {"eval", "exec", "compile"} else []
    assert not found


STATEMENT = re.compile(
    r"\s*(select\s|insert\s+into\s|update\s+[\w.{]+\s+set\s|delete\s+from\s|truncate\s|with\s+\w+\s+as\s*\(|"
    r"(create|drop|alter)\s+(table|schema|index|function|database|role|type|view)|(un)?listen\s|notify\s|copy\s)"
)


def is_statement(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return bool(node.values) and is_statement(node.values[0])
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(STATEMENT.match(node.value))


def marked(node: ast.AST, where: str, mark: str) -> bool:
    rows = (HOUSE / where.partition(":")[0]).read_text(encoding="utf-8").splitlines()
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None) or 1
    return any(mark in row for row in rows[first - 1 : last])


def test_no_sql_is_put_together_from_strings() -> None:
    found = []
    for where, node in nodes("aioflow/"):
        if isinstance(node, ast.JoinedStr):
            made = is_statement(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            made = is_statement(node.left)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            made = is_statement(node.func.value)
        else:
            made = False
        # Text that is printed for people, never sent, says so behind the linter's own mark.
        found += [where] if made and not marked(node, where, "noqa: S608") else []
    assert not found


def test_every_sql_file_says_what_it_is_for() -> None:
    bare = [named(path) for path in sql() if not re.match(r"-- \S", path.read_text(encoding="utf-8"))]
    assert not bare, f"no header comment: {bare}"


# Of each migration that has landed. A change of what one made is the next migration; only new ones are added here.
MIGRATIONS = {
    "0001_tables.sql": "e00101f553f5f7856e3569459e1caeaec1e26cdc6095fc3910f8ab41cec044c0",
    "0002_messages.sql": "6279ab913e26a848b6812b9a1528c50334b69ebe73150573ad553ccdf504802d",
    "0003_lifecycle.sql": "ee758fb7458ed6903094b9a6b58254384007ef72ecd72c2f8376b9ecea3ac4e9",
    "0004_messages_again.sql": "f8e64cb7019c8a7194174de3f9b174c4c51a390ddcff66d1016e807e4f0a9bc3",
    "0005_lifecycle_again.sql": "895a03446d5fb4f9eb92064745511fac536c493a2cb6e48f4dba13231b7fc34d",
}


def test_migrations_that_landed_are_not_edited() -> None:
    folder = PACKAGE / "store" / "sql" / "migrations"
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.sql")} == MIGRATIONS


def test_no_path_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.~>-])/(?:work|root|home|Users)/|\.\./shared")
    texts = {".py", ".sql", ".toml", ".md", ".yml", ".yaml", ".json", ".sh", ""}
    found = []
    for path in files():
        if path.suffix in texts and path != Path(__file__):
            rows = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [f"{named(path)}:{n}" for n, row in enumerate(rows, 1) if machine.search(row)]
    assert not found


def test_silenced_checks_give_a_reason() -> None:
    silenced = re.compile(
        r"#\s*(?:type:\s*ignore|noqa|pyright:\s*ignore)(?:\[[\w, -]*\]|:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?(.*)"
    )
    found = []
    for path in python("aioflow/"):
        for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = silenced.search(row)
            if match and not re.search(r"\w", match[1]):
                found.append(f"{named(path)}:{number}")
    assert not found, f"say why, behind the mark: {found}"


def sleeps(node: ast.AST, virtual: bool) -> Iterator[ast.Call]:
    """Sleeps of real time below a node; ``virtual`` inside a workflow, whose time is the test's to move."""
    if isinstance(node, ast.ClassDef):
        virtual = virtual or any("Workflow" in ast.unparse(base) for base in node.bases)
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] == "sleep":
        duration = node.args[0]
        blocking = ast.unparse(node.func) == "time.sleep"
        if isinstance(duration, ast.Constant) and isinstance(duration.value, int | float):
            long = LONGEST_SLEEP < duration.value < FOR_EVER
            if long and (blocking or not virtual):
                yield node
    for child in ast.iter_child_nodes(node):
        yield from sleeps(child, virtual)


def test_no_test_sleeps() -> None:
    """Tests wait for a state with a deadline (tests.support.eventually), never for time to pass."""
    found = [
        f"{named(path)}:{call.lineno}"
        for path in python("tests/")
        for call in sleeps(tree(path), virtual=named(path).startswith("tests/core/"))
    ]
    assert not found


def test_events_are_logged_through_telemetry() -> None:
    """Left to itself, structlog prints to stdout, where the data of a command goes; the logger of authors is theirs."""
    room = {"aioflow/telemetry.py", "aioflow/api/activity.py"}
    own = re.compile(r"structlog\.get_logger\(")
    assert {named(path) for path in python("aioflow") if own.search(path.read_text(encoding="utf-8"))} <= room
