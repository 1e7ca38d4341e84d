"""The fixture `members`: makes members of groups, and closes them when the test ends.

    def test_…(members):
        member = members("confluent-range", group, topic, max_poll_records=10)

A host for each language is shared by the tests of a run, since a JVM starts slowly; `alone=True` gives a
member a process of its own. What is still open at the end is closed, and what was killed or frozen ended.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.brokers.jars import SetupError, client_jars, java
from compat_tests.members.remote import PYTHON, QUICK, Host, Member, named
from compat_tests.support import mostly_long
from compat_tests.toolchains import go_host, node_host

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = sorted((Path(__file__).parent.parent / "java" / "members").glob("*.java"))
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
VARIANTS = [
    "kafka_python-range",
    "kafka_python-cooperative",
    "aiokafka-range",
    "confluent-range",
    "confluent-cooperative",
    "confluent-consumer",
    "java-range",
    "java-cooperative",
    "java-consumer",
]
"""`consumer` is the group protocol of KIP-848."""
FEW = ["kafka_python-cooperative", "aiokafka-range", "confluent-range", "java-consumer"]
"""Each client once, and each way of assigning."""
EACH_VARIANT = mostly_long(VARIANTS, short=FEW)
SARAMA = ["sarama-range", "sarama-roundrobin", "sarama-sticky"]
KAFKA_GO = ["kafka_go-range", "kafka_go-roundrobin", "kafka_go-rack"]
KAFKA_JS = ["kafkajs-default"]
FRANZ = ["franz-range", "franz-roundrobin", "franz-sticky", "franz-cooperative"]
"""These can only run, stop and close."""
SHARE = ["confluent_share-", "java-share", "franz-share"]
"""Members of share groups: these know neither offsets nor assignments."""
LANGUAGES = {"java": "java", "sarama": "go", "kafka_go": "go", "franz": "go", "kafkajs": "node"}
"""Of clients that are not Python."""
CLIENTS = ["kafka_python-range", "aiokafka-range", "confluent-range", "java-range"]
"""One of each, where the assignor does not matter."""


class Hosts:
    """Starts hosts; the shared ones when they are first asked for."""

    def __init__(self, classes: Path) -> None:
        self._classes = classes
        self._shared: dict[str, Host] = {}

    def shared(self, language: str) -> Host:
        if language not in self._shared:
            self._shared[language] = self.new(language)
        return self._shared[language]

    def new(self, language: str) -> Host:
        commands = {"java": self._java, "go": go_host, "node": node_host}
        return Host(commands[language]() if language in commands else PYTHON)

    def _java(self) -> list[str]:
        jars = ":".join(map(str, client_jars()))
        if not self._classes.exists():
            compiler = shutil.which("javac")
            if compiler is None:
                raise SetupError("a JDK of Java 17 or newer is needed: no `javac` on the PATH")
            command = [compiler, "-d", str(self._classes), "-cp", jars, *map(str, SOURCES)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        return [java(), *JVM, quiet, "-cp", f"{self._classes}:{jars}", "members.Host"]

    def end(self) -> None:
        for host in self._shared.values():
            host.end()


class Members:
    """Called with a variant, a group and topics, makes a member. Settings as Kafka names them, with _."""

    _numbers = itertools.count(1)

    def __init__(self, bootstrap: str, hosts: Hosts) -> None:
        self.bootstrap = bootstrap
        self._hosts = hosts
        self.made: list[Member] = []

    def __call__(
        self,
        variant: str,
        group: str,
        *topics: str,
        pattern: str | None = None,
        alone: bool = False,
        quick: bool = True,
        **settings: object,
    ) -> Member:
        """Made and subscribed; it joins with `take` or `run`."""
        member, number = self.start(
            variant, group, *topics, pattern=pattern, alone=alone, quick=quick, **settings
        )
        member.answer(number)
        return member

    def start(
        self,
        variant: str,
        group: str,
        *topics: str,
        pattern: str | None = None,
        alone: bool = False,
        quick: bool = True,
        **settings: object,
    ) -> tuple[Member, str]:
        """The same without waiting; with the number of the answer."""
        language = LANGUAGES.get(variant.partition("-")[0], "python")
        host = self._hosts.new(language) if alone else self._hosts.shared(language)
        name = f"member-{next(self._numbers)}"
        what = {"pattern": pattern} if pattern is not None else {"topics": ",".join(topics)}
        given = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "client.id": name,
            **(QUICK if quick else {}),
            **named(settings),
            **what,
        }
        member = Member(host, name, variant, alone=alone)
        self.made.append(member)
        pairs = [f"{key}={value}" for key, value in given.items()]
        return member, member.tell("make", variant, *pairs)

    def close(self) -> None:
        """All that is open, at the same time."""
        closing = [
            (member, member.tell("close"))
            for member in self.made
            if not member.closed and not member.alone
        ]
        for member, number in closing:
            member.answer(number)
        for member in self.made:
            if member.alone and not member.host.ended:
                member.host.signal(signal.SIGCONT)
                member.host.kill()
            elif member.alone:
                member.host.end()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("members") / "classes")
    yield made
    made.end()


@pytest.fixture
def members(bootstrap: str, hosts: Hosts) -> Iterator[Members]:
    made = Members(bootstrap, hosts)
    yield made
    made.close()
