"""Code blocks of the Markdown pages, and the modules that are made of them.

All Python blocks of a page make one module, in their order, so that later ones may use what earlier ones define. A
comment in front of a block says otherwise::

    <!-- snippet: file flows.py -->      begins a module of this name, which others of the page may import
    <!-- snippet: skip, it is half a function -->    leaves the block out, and says why
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HOUSE = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- snippet: (?P<mark>[^>]+?) -->\n)?^(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<text>.*?)^[ ]*```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def where(self) -> str:
        return f"{named(self.page)}:{self.line}"


def named(page: Path) -> str:
    return page.relative_to(HOUSE).as_posix()


@cache
def pages() -> list[Path]:
    found = [HOUSE / "README.md", *sorted((HOUSE / "docs").rglob("*.md")), *sorted((HOUSE / "docker").glob("*.md"))]
    return [page for page in found if page.name != "0000-template.md"]


@cache
def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            textwrap.dedent(found["text"]),
            found["mark"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def modules(page: Path) -> dict[str, str]:
    """Source by file name of the Python on a page."""
    own = f"page_{re.sub(r'[^a-z0-9]+', '_', named(page).lower().removesuffix('.md'))}.py"
    made: dict[str, str] = {}
    for one in snippets(page):
        if one.language != "python" or one.mark.startswith("skip"):
            continue
        name = one.mark.removeprefix("file ") if one.mark.startswith("file ") else own
        made[name] = made.get(name, "") + f"# {one.where}\n{one.text}\n"
    return made


def write_modules(page: Path, folder: Path) -> list[str]:
    """Write the modules of a page; gives their names."""
    made = modules(page)
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [name.removesuffix(".py") for name in made]
