"""A wheel that gets in the way of the project that installs it, or lacks something there.

Here it is a real one, in an environment of its own that has what the wheel asks for and pytest, and
nothing else. The projects in it have what real projects have: a `core/`, a `gateway/`, a module with the
name of one that the broker imports.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import kumquat

pytestmark = pytest.mark.long  # it builds, installs, and starts several brokers
REPOSITORY = Path(kumquat.__file__).parent.parent
PAGES = (".html", ".css", ".js", ".svg")
"""What the console is made of, besides code."""


@dataclass(frozen=True)
class Installed:
    """The environment that has the wheel."""

    folder: Path
    wheel: Path

    def run(
        self, *command: str, cwd: Path, path: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in a folder of the user's."""
        return subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=cwd,
            env=clean_environment(path),
            capture_output=True,
            text=True,
            check=False,
        )


def clean_environment(path: str | None) -> dict[str, str]:
    ours = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "KUMQUAT"))
    }
    return ours if path is None else {**ours, "PYTHONPATH": path}


def build(source: Path, folder: Path, kind: str) -> Path:
    """Build an sdist or a wheel, with the hatchling of this environment: nothing is downloaded."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


def needed_distributions(wheel: Path) -> set[str]:
    """What the wheel needs without extras, and pytest; with what these need."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = HeaderParser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist")
    needed: set[str] = set()
    waiting = ["pytest", *_without_extras(lines)]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += _without_extras(distribution(name).requires)
    return needed


def _without_extras(lines: list[str] | None) -> list[str]:
    requirements = map(Requirement, lines or ())
    return [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]


def link_distributions(names: set[str], folder: Path) -> None:
    """Have these packages in a folder, as links to where this environment has them."""
    for name in names:
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            place = folder / top
            if not place.exists():
                place.symlink_to(Path(str(distribution(name).locate_file(top))))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(REPOSITORY, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel that was built from the sdist, installed."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    wheel = build(source, tmp_path_factory.mktemp("wheel"), "wheel")
    packages, folder = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("venv") / "v"
    link_distributions(needed_distributions(wheel), packages)
    uv = [sys.executable, "-m", "uv", "--quiet", "--offline"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True)
    install = [*uv, "pip", "install", "--no-deps", "--python", str(folder), str(wheel)]
    subprocess.run(install, check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "packages.pth").write_text(f"{packages}\n")
    run_pytest = "import sys, pytest\nsys.exit(pytest.main())\n"  # sys.path as the script has it
    script = folder / "bin" / "pytest"
    script.write_text(f"#!{folder / 'bin' / 'python'}\n{run_pytest}")
    script.chmod(0o755)
    return Installed(folder, wheel)


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_a_wheel_from_the_sdist_lacks_nothing(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    direct = build(REPOSITORY, tmp_path_factory.mktemp("direct"), "wheel")
    assert names_in(installed.wheel) == names_in(direct)
    folders = [folder for folder in (REPOSITORY / "kumquat").iterdir() if folder.is_dir()]
    sources = {
        f"kumquat/{folder.name}/{file.relative_to(folder)}"
        for folder in folders
        for file in folder.rglob("*")
        if file.suffix in (".py", ".pyi", *PAGES)
        and not {"tests", "conftest.py"} & set(file.relative_to(folder).parts)
    }
    assert {name for name in names_in(direct) if name.count("/") > 1} == sources
    assert len(sources) > 200
    assert {name.rpartition(".")[2] for name in sources} >= {"html", "css", "js", "svg"}


def test_users_get_one_name_and_no_tests(installed: Installed) -> None:
    names = names_in(installed.wheel)
    assert {name.split("/")[0] for name in names} == {"kumquat"}
    assert not [name for name in names if "/tests/" in name or "conftest" in name]
    assert "kumquat/py.typed" in names


IMPORT_EVERYTHING = """
import importlib, importlib.util, pkgutil, sys
import kumquat

for found in pkgutil.walk_packages(kumquat.__path__, "kumquat."):
    if not found.name.startswith("kumquat.spark.") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
ours = kumquat.__path__[0]
names = {}
for name, module in list(sys.modules.items()):
    file = getattr(module, "__file__", None)
    if file and file.startswith(ours):
        names.setdefault(file, []).append(name)
twice = [several for several in names.values() if len(several) > 1]
hidden = [n for n in ("core", "gateway", "meta", "spark", "spark_connector") if importlib.util.find_spec(n)]
print(len(names) > 150, twice, hidden)
"""


def test_each_module_has_one_name_and_needs_only_what_the_wheel_asks_for(
    installed: Installed, tmp_path: Path
) -> None:
    seen = installed.run("python", "-c", IMPORT_EVERYTHING, cwd=tmp_path)
    assert (seen.stdout, seen.stderr) == ("True [] []\n", "")


def test_the_command_says_its_version(installed: Installed, tmp_path: Path) -> None:
    seen = installed.run("kumquat", "--version", cwd=tmp_path)
    assert re.fullmatch(r"kumquat \d+\.\d+\.\d+\n", seen.stdout), seen


def test_help_shows_how_to_use_the_broker_in_tests(installed: Installed, tmp_path: Path) -> None:
    seen = installed.run("python", "-c", "import kumquat.testing as t; help(t)", cwd=tmp_path)
    assert "from kumquat.testing import broker" in seen.stdout
    assert "@pytest.mark.kumquat(" in seen.stdout


def test_without_pyspark_one_line_says_what_to_install(
    installed: Installed, tmp_path: Path
) -> None:
    seen = installed.run("python", "-c", "from kumquat.spark import read_subject", cwd=tmp_path)
    assert seen.stderr.splitlines()[-1].startswith("ImportError: "), seen
    assert "kumquat-gateway[spark]" in seen.stderr.splitlines()[-1]


PROJECT_FILES = {
    "gateway/__init__.py": "NAME = 'a payment gateway'\n",
    "core/__init__.py": "",
    "core/models.py": "class Order:\n    pass\n",
    # The broker imports these; the project's own have the same names and nothing in common.
    "construct.py": "raise RuntimeError('the construct of the project')\n",
    "h11.py": "raise RuntimeError('the h11 of the project')\n",
    "tests/test_orders.py": """
import socket
import gateway
from core.models import Order
from kumquat.testing import broker

def test_imports():
    assert gateway.NAME == "a payment gateway"
    assert Order.__module__ == "core.models"

def test_the_fixture(kumquat):
    socket.create_connection(("127.0.0.1", kumquat.port)).close()

def test_broker():
    with broker(log_segment_bytes=65536) as b:
        socket.create_connection(("127.0.0.1", b.port)).close()
        assert b.stop() == 0
""",
}


@pytest.mark.parametrize("path", [None, "."])
def test_a_project_with_modules_of_any_name_can_run_its_tests(
    installed: Installed, tmp_path: Path, path: str | None
) -> None:
    # With PYTHONPATH a project's own trio would stop the pytest plugin of anyio, which Starlette needs.
    own = {} if path else {"trio.py": "raise RuntimeError('the trio of the project')\n"}
    write_files(tmp_path, {**PROJECT_FILES, **own, "conftest.py": ""})
    seen = installed.run("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path, path=path)
    assert "3 passed" in seen.stdout, seen.stdout + seen.stderr


def test_a_broker_starts_in_a_folder_with_modules_of_any_name(
    installed: Installed, tmp_path: Path
) -> None:
    write_files(tmp_path, {k: v for k, v in PROJECT_FILES.items() if "/" in k})
    kumquat = str(installed.folder / "bin" / "kumquat")
    command = [kumquat, "serve", "--listeners", "PLAINTEXT://127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment("."), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "ready on" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, lines
    assert lines[-1].endswith("stopped\n")
