"""Three lines to paste that try a running broker. `kumquat serve --hints` and `make run` show them.

They use the command line of kafka-python, an ordinary client. Where it is not installed, the first line
installs it.
"""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

TOPIC = "greetings"


def hints(address: str) -> list[str]:
    """Write a message, read all messages, list the topics. Each line can be pasted more than once."""
    address = reachable(address)
    folder = Path(sys.executable).parent
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    client = folder / "kafka-python"
    install = f"{folder / 'python'} -m pip install --quiet kafka-python && "
    first = "" if find_spec("kafka") else install
    reading = "-C auto_offset_reset=earliest -C consumer_timeout_ms=2000"
    return [
        f"{first}echo hello | {client} producer -b {address} -t {TOPIC}",
        f"{client} consumer -b {address} -t {TOPIC} {reading}",
        f"{client} admin -b {address} topics list",
    ]


def reachable(address: str) -> str:
    """Where a client on this machine finds what listens there."""
    return re.sub(r"(^|//)(0\.0\.0\.0|\[::\]):", r"\g<1>127.0.0.1:", address)


def show_hints(address: str, console: str | None) -> None:
    lines = "\n".join(f"    {line}" for line in hints(address))
    print(f"\nTry it from another terminal, in this folder:\n\n{lines}\n")
    if console is not None:
        print(f"console: {reachable(console)}\n")
    sys.stdout.flush()
