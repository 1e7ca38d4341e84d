"""Kumquat as a child process: the same `kumquat serve` that an operator starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.brokers.process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path


class Kumquat(BrokerProcess):
    name = "Kumquat"

    def __init__(
        self, *, folder: Path | None = None, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__(folder)
        self.settings = settings or {}

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "kumquat", "serve"]
        command += ["--listeners", f"PLAINTEXT://{self.bootstrap}"]
        command += ["--log-dirs", str(self.folder / "data")]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command
