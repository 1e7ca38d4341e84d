"""Where the broker's options come from: defaults, a properties file, the environment, flags.

    given = [Setting("log.dirs", "/srv/kumquat", "--log-dirs")]
    load(Path("server.properties"), os.environ, given)

Later sources win; within a source the last mention does (as in Java's properties, to which
scripts append). An unknown name or a bad value anywhere is an error, even when a later source
would hide it: it is a mistake that somebody made. The ConfigError has a line for each, which names the
place (file and line, variable or flag), the option, the value, what is allowed, and the nearest known name.
Whether the options fit together is looked at when each of them is right.

The file has Java's properties syntax: `name=value`, `name: value` or `name value`; comments after
# or !; a backslash at the end of a line continues it; \\t, \\n, \\uXXXX and so on are escapes. It
is read as UTF-8.

Variables are named KUMQUAT_ and the option in capitals, with _ for each dot. Kubernetes gives
every pod KUMQUAT_SERVICE_… and KUMQUAT_PORT… variables when there is a service called kumquat:
those are no options.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kumquat.gateway.config.declare import (
    ENVIRONMENT_PREFIX,
    ConfigError,
    Option,
    variable_of,
)
from kumquat.gateway.config.kafka_only import why_foreign
from kumquat.gateway.config.options import OPTIONS, BrokerConfig

_NAMES: dict[str, Option] = {
    name: option for option in OPTIONS.values() for name in (option.name, *option.aliases)
}
_VARIABLES = {variable_of(name): name for name in _NAMES}
_NOT_OURS = re.compile(r"KUMQUAT_(SERVICE_|PORT$|PORT_[0-9]+_)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """An option as somebody wrote it, and where."""

    name: str
    text: str
    origin: str
    problem: str = ""
    """Why it cannot even be read."""


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    given: Iterable[Setting] = (),
) -> BrokerConfig:
    """The broker's options from all sources; raises ConfigError."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    complaints: list[str] = []
    for source in (read_file(file) if file else (), read_environment(environ or {}), given):
        for setting in source:
            try:
                option, value = _parse(setting)
            except ConfigError as error:
                complaints += error.complaints
                continue
            values[option.name] = value
            origins[option.name] = setting.origin
    if complaints:
        raise ConfigError(*complaints)
    try:
        return BrokerConfig.of(values)
    except ConfigError as error:
        named = {name: origins[name] for name in error.names if name in origins}
        raise ConfigError(*(_with_places(line, named) for line in error.complaints)) from None


def _with_places(line: str, origins: Mapping[str, str]) -> str:
    """A line on options that do not fit together, and where they were said."""
    places = [f"{name} from {origin}" for name, origin in origins.items() if f"{name}=" in line]
    return f"{line} ({', '.join(places)})" if places else line


def read_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in environ.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and not _NOT_OURS.match(variable):
            if variable in _VARIABLES:
                yield Setting(_VARIABLES[variable], text, variable)
            else:
                problem = f"unknown option {variable}{_hint(variable, _VARIABLES)}"
                yield Setting(variable, text, "environment", problem)


def read_file(path: Path) -> Iterator[Setting]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"--config: cannot read {path}: {reason}") from None
    for number, line in _logical_lines(text):
        origin = f"{path}:{number}"
        name, value = _split(line)
        try:
            yield Setting(_unescape(name), _unescape(value), origin)
        except ValueError:
            yield Setting(name, value, origin, "\\u must be followed by four hexadecimal digits")


def _parse(setting: Setting) -> tuple[Option, object]:
    if setting.problem:
        raise ConfigError(f"{setting.origin}: {setting.problem}")
    option = _NAMES.get(setting.name)
    if option is None:
        raise ConfigError(f"{setting.origin}: {explain_unknown(setting.name)}")
    try:
        return option, option.kind.parse(setting.text)
    except ValueError as error:
        raise ConfigError(
            f"{setting.origin}: {option.name}={setting.text!r} is not allowed: {error}"
        ) from None


def explain_unknown(name: str) -> str:
    """What to say of an option that there is not."""
    # A near miss of one of ours is a slip, even where the name also looks like one of Kafka's.
    slip = get_close_matches(name, _NAMES, n=1, cutoff=0.95)
    reason = None if slip else why_foreign(name)
    if reason:
        return f"{name} is an option of Kafka's that Kumquat does not have: {reason}"
    return f"unknown option {name!r}{_hint(name, _NAMES)}"


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blanks, numbered from 1."""
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        if _continues(line):
            joined += line[:-1]
            continue
        yield start, joined + line
        joined, start = "", 0
    if start:
        yield start, joined


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})?|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split(line: str) -> tuple[str, str]:
    match = _SEPARATOR.fullmatch(line)
    return (match[1], match[2]) if match else (line, "")


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] == "u":
            raise ValueError
        return chr(int(match[2], 16)) if match[2] else _PLAIN.get(match[1], match[1])

    return _ESCAPE.sub(replace, text)
