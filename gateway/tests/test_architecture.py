"""docs/architecture.md, README.md and the heads of files name files and functions: each of them exists.

The page names a function as `FILE: CLASS.METHOD`. It is looked up in the syntax tree of that
file: nothing is imported, and a method that is only assigned in `__init__` does not count.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")

WALKS = ("Produce", "Fetch", "A delayed record", "A join", "A message that fails")
FUNCTION = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
PATH = re.compile(r"`([\w./-]+(?:/|\.py|\.md))`")
IN_A_DIAGRAM = re.compile(r"participant \w+ as (\S+/\S+)")


@cache
def names_in(path: str) -> frozenset[str]:
    """Classes and functions of a file, methods as Class.method."""
    found: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{prefix}{node.name}.")

    collect(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("path", "name"), sorted(set(FUNCTION.findall(PAGE))))
def test_a_function_on_the_page_that_was_renamed(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"docs/architecture.md: there is no {path} any more"
    assert name in names_in(path), f"docs/architecture.md: {path} has no {name} any more"


def test_a_path_on_the_page_that_was_moved() -> None:
    named = [*PATH.findall(PAGE), *IN_A_DIAGRAM.findall(PAGE)]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("title", WALKS)
def test_a_diagram_that_shows_what_no_step_names(title: str) -> None:
    diagram, _, steps = section(title).partition("```mermaid\n")[2].partition("```\n")
    drawn = set(re.findall(r"\b(\w+)\(\)", diagram))
    listed = {name.rpartition(".")[2] for _, name in FUNCTION.findall(steps)}
    assert drawn, f"{title} has no diagram"
    assert drawn <= listed


@pytest.mark.parametrize("title", WALKS)
def test_a_step_that_is_missing(title: str) -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", section(title), re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 10


def test_a_package_that_the_page_leaves_out() -> None:
    named = {path.rstrip("/") for path in PATH.findall(PAGE) if path.endswith("/")}
    for init in [*ROOT.glob("core/*/__init__.py"), *ROOT.glob("gateway/*/__init__.py")]:
        package = init.parent.relative_to(ROOT).as_posix()
        if not package.endswith("/tests"):
            assert any(path == package or path.startswith(f"{package}/") for path in named), package


def test_a_path_in_the_readme_that_was_moved() -> None:
    """In a row of a table a name without a folder is in the folder of the path before it."""
    gone = []
    for row in README.splitlines():
        folder = ROOT
        for path in PATH.findall(row):
            place = ROOT / path if "/" in path else folder / path
            folder = place.parent
            if not place.exists():
                gone.append(f"{path} in {row}")
    assert gone == []


def test_a_file_head_that_names_a_file_that_was_moved() -> None:
    """A head may name a file by the end of its path."""
    tops = ("core", "gateway", "meta", "spark_connector", "bench", "compat_tests")
    files = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    known = {f"/{path.relative_to(ROOT).as_posix()}" for path in files}
    ends = {path[at:] for path in known for at, sign in enumerate(path) if sign == "/"}
    gone = []
    for path in files:
        head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        named = set(re.findall(r"(?<![\w./-])(?:\w+/)*\w+\.py\b", head))
        gone += [(path.as_posix(), name) for name in named if f"/{name}" not in ends]
    assert gone == []
