"""Java jars from Maven Central, without Maven.

PySpark carries Apache Ivy; run as a program, it resolves a dependency with all it needs. The jars
are stored in `.cache/jars/<name>` under the repository. That folder is complete or absent: Ivy fills
another folder, which is renamed only when Ivy has succeeded, and a lock file lets one process at a
time download. What is missing on the machine (Java, PySpark, the network) is a SetupError of one
line.
"""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE = Path(__file__).resolve().parents[2] / ".cache"
KAFKA_VERSION = "4.3.1"
SLF4J = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Kafka's jars log through slf4j 1.7 and bring no back end: without one a broker dies silently."""


class SetupError(RuntimeError):
    """Something that the machine lacks; the message is one line for a person."""


def broker_jars() -> list[Path]:
    """The class path that runs an Apache Kafka broker."""
    return resolve("kafka", ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), SLF4J)


def client_jars() -> list[Path]:
    """The class path that compiles and runs a program with the Java client."""
    return resolve("kafka-clients", ("org.apache.kafka", "kafka-clients", KAFKA_VERSION), SLF4J)


def tool_jars() -> list[Path]:
    """The class path of Kafka's command-line tools."""
    return resolve("kafka-tools", ("org.apache.kafka", "kafka-tools", KAFKA_VERSION), SLF4J)


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise SetupError("Java 17 or newer is needed to run Apache Kafka: no `java` on the PATH")
    return found


def resolve(name: str, *dependencies: tuple[str, str, str]) -> list[Path]:
    folder = CACHE / "jars" / f"{name}-{dependencies[0][2]}"
    with locked(CACHE / "jars.lock"):
        if not folder.is_dir():
            _download(folder, dependencies)
    return sorted(folder.glob("*.jar"))


def _download(folder: Path, dependencies: tuple[tuple[str, str, str], ...]) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for organisation, module, revision in dependencies:
        command = [java(), "-jar", str(_ivy_jar()), "-cache", str(CACHE / "ivy"), "-warn"]
        command += ["-dependency", organisation, module, revision, "-confs", "default"]
        command += ["-retrieve", f"{partial}/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not any(partial.glob(f"{module}-{revision}.jar")):
            log = CACHE / "ivy.log"
            log.write_text(done.stdout + done.stderr)
            raise SetupError(f"cannot download {module} {revision} from Maven Central; see {log}")
    partial.replace(folder)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("PySpark is needed for its Ivy jar: install the `spark` dependency group")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise SetupError(f"no Ivy jar in {Path(spec.origin).parent / 'jars'}")
    return found[-1]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
