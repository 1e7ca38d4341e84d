"""Where the broker's options come from: defaults, a properties file, the environment, flags.

    given = [Setting("log.dirs", "/srv/kumquat", "--log-dirs")]
    load(Path("server.properties"), os.environ, given)

A later source overrides an earlier one; within a source the last mention counts (as in Java's properties
files, to which scripts append). An unknown name or a bad value is an error anywhere, even where a later
source would override it: it is a mistake that somebody made. BadOptions has a line for each. The line names
the place (file and line, variable or flag), the option, the value, what is allowed, and the nearest known
name. Whether the options fit together is checked once each of them is right.

The file is read as UTF-8; its syntax is in properties.py.

A variable is named KUMQUAT_ and the option in capitals, with _ for each dot. When Kubernetes has a service
called kumquat, it gives every pod variables KUMQUAT_SERVICE_… and KUMQUAT_PORT…: those are no options. Nor
is KUMQUAT_BOOTSTRAP, with which commands find a broker.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kumquat.gateway.config.declare import ENVIRONMENT_PREFIX, Option, variable_of
from kumquat.gateway.config.errors import BadOptions, Conflict, ConflictingOptions
from kumquat.gateway.config.kafka_only import why_kafka_only
from kumquat.gateway.config.options import OPTIONS, BrokerConfig
from kumquat.gateway.config.properties import logical_lines, split, unescape

_NAMES: dict[str, Option] = {
    name: option for option in OPTIONS.values() for name in (option.name, *option.aliases)
}
_VARIABLES = {variable_of(name): name for name in _NAMES}
_NOT_OURS = re.compile(r"KUMQUAT_(SERVICE_|PORT$|PORT_[0-9]+_|BOOTSTRAP$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """An option as somebody wrote it, and where."""

    name: str
    text: str
    origin: str
    problem: str = ""
    """Why name or text cannot be read."""


class _BadSetting(Exception):
    """One setting that cannot be used; the text is the complaint."""


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    given: Iterable[Setting] = (),
) -> BrokerConfig:
    """The broker's options from all sources; raises BadOptions."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    complaints: list[str] = []
    for source in (read_file(file) if file else (), read_environment(environ or {}), given):
        for setting in source:
            try:
                option, value = _parse(setting)
            except _BadSetting as error:
                complaints.append(str(error))
                continue
            values[option.name] = value
            origins[option.name] = setting.origin
    if complaints:
        raise BadOptions(*complaints)
    try:
        return BrokerConfig.of(values)
    except ConflictingOptions as error:
        raise BadOptions(*(_with_places(one, origins) for one in error.conflicts)) from None


def _with_places(conflict: Conflict, origins: Mapping[str, str]) -> str:
    """A conflict, and where its options were set."""
    places = [f"{name} from {origins[name]}" for name in conflict.names if name in origins]
    return f"{conflict.complaint} ({', '.join(places)})" if places else conflict.complaint


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
        raise BadOptions(f"--config: cannot read {path}: {reason}") from None
    for number, line in logical_lines(text):
        origin = f"{path}:{number}"
        name, value = split(line)
        try:
            yield Setting(unescape(name), unescape(value), origin)
        except ValueError:
            yield Setting(name, value, origin, "\\u must be followed by four hexadecimal digits")


def _parse(setting: Setting) -> tuple[Option, object]:
    if setting.problem:
        raise _BadSetting(f"{setting.origin}: {setting.problem}")
    option = _NAMES.get(setting.name)
    if option is None:
        raise _BadSetting(f"{setting.origin}: {explain_unknown(setting.name)}")
    try:
        return option, option.kind.parse(setting.text)
    except ValueError as error:
        raise _BadSetting(
            f"{setting.origin}: {option.name}={setting.text!r} is not allowed: {error}"
        ) from None


def explain_unknown(name: str) -> str:
    """What to say about an option that does not exist."""
    # Almost one of our names is a slip, even where the name also looks like one of Kafka's.
    slip = get_close_matches(name, _NAMES, n=1, cutoff=0.95)
    reason = None if slip else why_kafka_only(name)
    if reason:
        return f"{name} is an option of Kafka's that Kumquat does not have: {reason}"
    return f"unknown option {name!r}{_hint(name, _NAMES)}"


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
