"""A run finds the same surroundings wherever it is started: the tests below hold there too."""

from __future__ import annotations

import locale
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kumquat.gateway.tests import surroundings

ROOT = Path(__file__).resolve().parents[2]
START = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGALRM})
os.umask(0o077)
os.closerange(0, 1)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""
HOSTILE = {
    "COLUMNS": "20",
    "FORCE_COLOR": "1",
    "KUMQUAT_BOOTSTRAP": "127.0.0.1:1",
    "LANG": "tr_TR",
    "LC_ALL": "C",
    "NO_COLOR": "1",
    "PYTHONWARNINGS": "error",
    "TZ": "America/New_York",
    "http_proxy": "http://127.0.0.1:1",
}


@pytest.mark.parametrize("number", surroundings.HANDLERS)
def test_a_process_that_a_test_starts_ignores_and_blocks_no_signal(number: signal.Signals) -> None:
    program = (
        f"import signal; print(signal.getsignal({number}) is signal.SIG_IGN,"
        f" {number} in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False False\n"


def test_a_process_that_fails_is_seen_to_fail() -> None:
    assert (
        subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=False).returncode == 3
    )


def test_files_are_made_as_the_umask_says(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~surroundings.UMASK


def test_variables_have_known_values() -> None:
    assert {name: os.environ.get(name) for name in surroundings.KNOWN} == surroundings.KNOWN
    assert not surroundings.DROPPED & set(os.environ)
    assert not {"KUMQUAT_BOOTSTRAP", "PYTHONWARNINGS"} & set(os.environ)


def test_the_home_folder_can_be_written_to() -> None:
    assert os.access(os.environ["HOME"], os.W_OK)


def test_texts_are_utf_8_and_times_are_not_utc(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("ä")  # as the locale says
    assert (tmp_path / "text").read_bytes() == "ä".encode()
    assert locale.getlocale(locale.LC_CTYPE)[1] == "UTF-8"
    assert time.localtime(0).tm_gmtoff


def test_a_run_has_these_surroundings_wherever_it_is_started(tmp_path: Path) -> None:
    needed = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [
            *(sys.executable, "-c", START),
            *(__file__, "-k", "not wherever", "-p", "no:cacheprovider"),
        ],
        cwd=ROOT,
        env={**needed, **HOSTILE, "PYTEST_ADDOPTS": f"--basetemp={tmp_path / 'inner'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 deselected" in done.stdout


def test_bytecode_is_made_of_each_folder_behind_a_link() -> None:
    """compileall follows no links, and a test that starts a broker waits half as long again without it."""
    makefile = (ROOT / "Makefile").read_text().splitlines()
    (line,) = [line for line in makefile if "-m compileall" in line]
    links = {link.resolve().name for link in (ROOT / "kumquat").iterdir() if link.is_symlink()}
    assert {"kumquat", *links} <= set(line.split())
