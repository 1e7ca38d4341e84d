"""What every test finds, wherever its run was started: signals, umask, locale, time zone, variables.

conftest.py calls `settle` once in each process of a run. What a test starts inherits it. A test that needs
something else (a terminal of 150 columns, a variable) says so itself.

Without it a run would depend on where it is started: a shell without job control ignores SIGINT for what it
runs in the background, and a process that ignores a signal hands that on to what it starts.

SIGHUP stays as it is: no test sends it, and `nohup make test` is to outlive its terminal.
"""

from __future__ import annotations

import locale
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

KNOWN = {
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm",
    "TZ": "Asia/Kathmandu",  # 5 h 45 min from UTC: nobody takes the one for the other
    "no_proxy": "127.0.0.1,localhost",
    "NO_PROXY": "127.0.0.1,localhost",
}
DROPPED = {
    *("CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "FORCE_COLOR", "NO_COLOR"),
    *("COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("LANG", "LANGUAGE"),
}
DROPPED_PREFIXES = ("KUMQUAT_", "_KUMQUAT_", "LC_", "PYSPARK_", "PYTHON", "SPARK_")
KEPT = {"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPYCACHEPREFIX"}
"""They change no answer: where bytecode goes, and the order of sets."""
UMASK = 0o022
HANDLERS: dict[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGCHLD: signal.SIG_DFL,
}


def settle(spare_home: Path) -> None:
    """`spare_home`: the home folder where the user has none that can be written to."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number, handler in HANDLERS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    os.umask(UMASK)
    for name in list(os.environ):
        if name in DROPPED or (name.startswith(DROPPED_PREFIXES) and name not in KEPT):
            del os.environ[name]
    os.environ.update(KNOWN)
    if not os.access(os.environ.get("HOME") or "/nowhere", os.W_OK | os.X_OK):
        spare_home.mkdir(parents=True, exist_ok=True)
        os.environ["HOME"] = str(spare_home)
    time.tzset()
    with suppress(locale.Error):  # an old system has no C.UTF-8
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
