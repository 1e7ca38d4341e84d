"""A start that fails without a clear line, with more than one, or with the wrong exit code."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kumquat.gateway.cli import hints
from kumquat.gateway.cli.main import COMMANDS, main
from kumquat.gateway.cli.tests import terminal
from kumquat.gateway.config.options import BrokerConfig
from kumquat.gateway.testing.broker import TestBroker, broker
from kumquat.version import version

FREE = "PLAINTEXT://127.0.0.1:0"
DEADLINE = 120


def kumquat(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kumquat", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a start that is refused."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("kumquat: ")
    return err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--mesage-max-bytes", "5"], "did you mean message.max.bytes?"),
        (["serve", "--mesage-max-bytes=5"], "did you mean message.max.bytes?"),
        (["serve", "--num-io-threads", "8"], "no thread pools"),
        (["serve", "--message-max", "5"], "unknown option"),
        (["serve", "--message-max-bytes", "x"], "--message-max-bytes: message.max.bytes='x'"),
        (["serve", "--set", "message.max.bytes=x"], "--set: message.max.bytes='x'"),
        (["serve", "--set", "message.max.bytes"], "expected NAME=VALUE"),
        (["serve", "--set", "a=b"], "--set: unknown option 'a'"),
        (["serve", "--listeners"], "--listeners: expected one argument"),
        (["serve", "--listeners", "SSL://:1"], "SSL is not served yet"),
        (["serve", "--config", "/no/such.properties"], "cannot read /no/such.properties"),
        (["serve", "stray"], "unknown argument 'stray'"),
        (["sreve"], "invalid choice: 'sreve'"),
        ([], "kumquat serve"),
        (["dump"], "FILE"),
        (["dump", "a", "b"], "unknown argument 'b'"),
        (["delay"], "ACTION"),
        (["delay", "sohw"], "invalid choice: 'sohw'"),
        (["delay", "move", "--subject", "s", "--id", "i"], "--due"),
        (["delay", "count", "--id", "i"], "unknown argument '--id'"),
        (["serve", "--admin-listener", "HTTP://0.0.0.0:1"], "not this machine alone"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refused(capsys, *arguments)


def test_each_mistake_in_a_file_is_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=8\nnode.id=x\n")
    assert main(["serve", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"kumquat: {file}:") for line in lines] == [True, True]


def test_a_bad_variable_is_one_line_and_exit_code_2() -> None:
    result = kumquat("serve", KUMQUAT_LISTENERS="nonsense")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "KUMQUAT_LISTENERS: listeners='nonsense' is not allowed" in result.stderr


def test_a_port_in_use_is_one_line_with_the_address_and_exit_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        folder = tmp_path / "data"
        result = kumquat(
            "serve", "--listeners", f"PLAINTEXT://{address}", "--log-dirs", str(folder)
        )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert address in result.stderr
    assert not folder.exists()


def test_an_admin_port_in_use_is_one_line_with_the_address_and_exit_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"HTTP://127.0.0.1:{taken.getsockname()[1]}"
        folder = tmp_path / "data"
        result = kumquat(
            "serve", "--listeners", FREE, "--admin-listener", address, "--log-dirs", str(folder)
        )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert address in result.stderr
    assert not folder.exists()


def test_a_folder_in_use_is_one_line_with_the_first_brokers_pid(kumquat: TestBroker) -> None:
    command = [sys.executable, "-m", "kumquat", "serve", "--listeners", FREE]
    command += ["--log-dirs", str(kumquat.directory)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert str(kumquat.pid) in result.stderr


def test_a_folder_that_cannot_be_made_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = kumquat("serve", "--listeners", FREE, "--log-dirs", str(tmp_path / "file"))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert str(tmp_path / "file") in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(number: signal.Signals) -> None:
    with broker() as b:
        os.kill(b.pid, number)
        assert b.wait() == 0
        assert b.log_text().splitlines()[-1].endswith("stopped")


def test_options_come_from_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "kumquat.properties"
    file.write_text(f"listeners={FREE}\nlog.dirs={tmp_path / 'from-file'}\nlogging.level=ERROR\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "kumquat", "serve", "--config", str(file), "--hints"],
        env={**os.environ, "KUMQUAT_LOG_DIRS": str(tmp_path / "from-environment")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    shown = [process.stdout.readline() for _ in range(7)]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, "")
    assert shown[1] == "Try it from another terminal, in this folder:\n"
    assert (tmp_path / "from-environment").exists()
    assert not (tmp_path / "from-file").exists()


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kumquat {version()}\n"
    assert version()[0].isdigit()


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_version_and_help_load_the_broker_or_a_client(argument: str) -> None:
    program = (
        f"import sys; from kumquat.gateway.cli.main import COMMANDS, main; main([{argument!r}]);"
        "print(sorted({'trio', 'sqlalchemy', 'construct', 'kafka', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith("[]\n")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--log-retention-check-interval-ms" in out
    assert "KUMQUAT_MESSAGE_MAX_BYTES" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_cannot_be_loaded_or_explains_nothing(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main([name, "-h"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: kumquat {name} ")
    assert len(out.splitlines()) > 3
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(line.split()[:1] == [name] and len(line.split()) > 2 for line in listed)


def test_an_option_that_is_given_twice_counts_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def run_broker(config: BrokerConfig, _hints: object) -> int:
        seen.append(config.message_max_bytes)
        return 0

    monkeypatch.setattr("kumquat.gateway.process.server.run_broker", run_broker)
    monkeypatch.setattr("kumquat.gateway.process.log.set_up_logging", lambda level, format: None)
    flag, by_name = ["--message-max-bytes", "5000"], ["--set", "message.max.bytes=6000"]
    assert main(["serve", *flag, *by_name]) == 0
    assert main(["serve", *by_name, *flag]) == 0
    assert main(["serve", *by_name, *flag, *by_name]) == 0
    assert seen == [6000, 5000, 6000]


def test_a_mistake_that_is_overridden_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    twice = ["--node-id", "x", "--node-id", "5"]
    assert "--node-id: node.id='x' is not allowed" in refused(capsys, "serve", *twice)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_another_shell(
    capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0
    assert f"_KUMQUAT_COMPLETE={shell}_complete" in capsys.readouterr().out
    assert "SHELL: 'tcsh' is not one of" in refused(capsys, "completion", "tcsh")


def test_the_shell_gets_other_completions() -> None:
    words = {"COMP_WORDS": "kumquat de", "COMP_CWORD": "1"}
    result = kumquat(_KUMQUAT_COMPLETE="bash_complete", **words)
    assert (result.returncode, result.stdout, result.stderr) == (0, "plain,delay\n", "")


def test_dump_shows_what_a_broker_wrote(kumquat: TestBroker) -> None:
    kumquat.stop()
    (segment,) = kumquat.directory.rglob("*.log")
    command = [sys.executable, "-m", "kumquat", "dump", str(segment)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") >= 1
    broken = subprocess.run(
        f"{shlex.join(command)} | true", shell=True, capture_output=True, text=True, check=False
    )
    assert broken.stderr == ""
    kumquat.start()


def test_dump_of_a_file_that_is_not_there_names_it() -> None:
    result = kumquat("dump", "/no/00000000000000000000.log")
    assert result.returncode == 2
    assert "/no/00000000000000000000.log" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_the_lines_to_paste_work_and_work_again(kumquat: TestBroker) -> None:
    write, read, topics = hints.hints(kumquat.bootstrap)

    def paste(line: str) -> str:
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, check=True, timeout=DEADLINE
        )
        assert done.stderr == ""
        return done.stdout

    paste(write)
    paste(write)
    assert paste(read).split() == ["hello", "hello"]
    assert paste(topics) == "['__kumquat_retry', 'greetings']\n"


def test_the_first_line_to_paste_installs_the_client_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hints, "find_spec", lambda _name: None)
    first, second, _ = hints.hints("127.0.0.1:9092")
    assert "pip install --quiet kafka-python && echo hello" in first
    assert "pip" not in second


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:9093", "\nconsole: http://127.0.0.1:9093\n"),
        ("http://0.0.0.0:9093", "\nconsole: http://127.0.0.1:9093\n"),
        ("http://[::]:9093", "\nconsole: http://127.0.0.1:9093\n"),
    ],
)
def test_whoever_tries_the_broker_is_shown_its_console(
    url: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hints.show_hints("127.0.0.1:9092", url)
    assert shown in capsys.readouterr().out


def test_no_console_is_shown_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    hints.show_hints("127.0.0.1:9092", None)
    assert "console" not in capsys.readouterr().out


def test_the_lines_to_paste_name_an_address_that_can_be_reached() -> None:
    assert " 127.0.0.1:9092 " in hints.hints("0.0.0.0:9092")[0]
    assert " 127.0.0.1:9092 " in hints.hints("[::]:9092")[0]
    assert " [::1]:9092 " in hints.hints("[::1]:9092")[0]


def test_a_terminal_without_umlauts_ends_a_command(tmp_path: Path) -> None:
    wrong = ["doctor", "--machine", "--data", str(tmp_path / "ä")]
    result = terminal.shell(*wrong, PYTHONIOENCODING="ascii")
    assert "Traceback" not in result.err
    assert "\\xe4" in result.text
