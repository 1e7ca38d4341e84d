"""Apache Kafka 4.3.1 as a child process: one KRaft node, broker and controller in one, on loopback.

    with kafka() as k:               # as shipped: answers before it syncs
        k.bootstrap, k.pid
    with kafka(flush=True) as k:     # log.flush.interval.messages=1: syncs before it answers
    with kafka(**{"message.max.bytes": "2000000"}) as k:

The settings are those of the server.properties that Kafka ships; what one node alone needs
(replication factors of 1) and what saves a test from waiting (no delay before a group's first rebalance) is
added. The JVM's flags are those of kafka-server-start.sh.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.brokers.jars import SetupError, broker_jars, java
from bench.brokers.process import BrokerProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CLUSTER_ID = "a3VtcXVhdC1iZW5jaC0wMQ"
_SHIPPED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "group.initial.rebalance.delay.ms": "0",
}
_JVM = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]


class Kafka(BrokerProcess):
    def __init__(
        self,
        *,
        flush: bool = False,
        heap: str = "1g",
        folder: Path | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.name = "Kafka, synced" if flush else "Kafka"
        self.heap = heap
        self.settings = dict(_SHIPPED)
        if flush:
            self.settings["log.flush.interval.messages"] = "1"
        self.settings |= settings or {}
        self.controller_port = free_ports(1)[0]
        self._class_path = ":".join(map(str, broker_jars()))

    def command(self) -> list[str]:
        properties = self._write_properties()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(properties)
        heap = [f"-Xmx{self.heap}", f"-Xms{self.heap}"]
        return [java(), *heap, *_JVM, "-cp", self._class_path, "kafka.Kafka", str(properties)]

    def _write_properties(self) -> Path:
        controller = f"127.0.0.1:{self.controller_port}"
        broker = f"PLAINTEXT://{self.bootstrap}"
        lines = self.settings | {
            "listeners": f"{broker},CONTROLLER://{controller}",
            "advertised.listeners": broker,
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def _format(self, properties: Path) -> None:
        command = [java(), "-cp", self._class_path, "kafka.tools.StorageTool", "format"]
        command += ["-t", _CLUSTER_ID, "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise SetupError(f"Kafka's StorageTool failed: {' | '.join(said[-3:])}")


@contextmanager
def kafka(
    *, flush: bool = False, heap: str = "1g", folder: Path | None = None, **settings: str
) -> Iterator[Kafka]:
    """A running Kafka; its data is deleted when the block ends, unless `folder` was given."""
    with Kafka(flush=flush, heap=heap, folder=folder, settings=settings) as running:
        yield running
