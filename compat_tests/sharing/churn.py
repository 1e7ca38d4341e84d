"""A group under churn: members of all clients come, leave, are killed and frozen while messages flow.

`Churn` does it: each turn some messages are written and one thing happens to one member, drawn from a
seeded generator. What became of each message is computed afterwards from what the members reported:

- `missing`: written and never given to anybody.
- `repeated`: given more often than can be explained. A repetition is explained when one of those who read
  it was killed or frozen, got an error for its commit, or had to give the topic up before it could commit.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING

from compat_tests.groups.stories import fill, unexplained
from compat_tests.members.remote import NEWS, Failed, Member, wait
from compat_tests.support import DEADLINE, SESSION_MS

if TYPE_CHECKING:
    from compat_tests.members.fixture import Members
    from kumquat.testing import TestBroker

MOST = 8
TURN_SECONDS = 0.8
WRITTEN_EACH_TURN = 500
HANDLER_MS = 4
FROZEN_TURNS = (2, 9)
"""Shorter and longer than a session."""
WEIGHTS = {"join": 6, "leave": 2, "kill": 2, "freeze": 1, "drain": 1}


class Churn:
    def __init__(
        self,
        members: Members,
        group: str,
        topic: str,
        variants: list[str],
        *,
        seed: int,
        fewest: int = 2,
        broker: TestBroker | None = None,
    ) -> None:
        """With a broker, it is killed and restarted sometimes too."""
        self._members, self._group, self._topic = members, group, topic
        self._variants = variants
        self._fewest, self._broker = fewest, broker
        self._weights = WEIGHTS | ({"crash": 2} if broker else {})
        self._random = random.Random(seed)
        self._starting: list[tuple[Member, str]] = []
        self._live: list[Member] = []
        self._leaving: list[tuple[Member, str]] = []
        self._frozen: list[tuple[Member, int]] = []
        self._turn = 0
        self.written = 0
        self.violent: set[str] = set()
        """Names of the members that were killed or frozen."""
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        for _ in range(MOST):
            self._join()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._turn += 1
            self._look_after()
            names, weights = list(self._weights), list(self._weights.values())
            happens = self._random.choices(names, weights)[0]
            self._happen(happens)
            if happens != "drain":
                self._write(WRITTEN_EACH_TURN)
            self._pass_time()
        self._settle()

    def _happen(self, what: str) -> None:
        crowd = len(self._live) + len(self._starting) + len(self._frozen)
        if what == "join" and crowd < MOST:
            self._join()
        elif what == "drain":
            self._pass_time()
        elif what == "crash":
            self._crash()
        elif what in ("leave", "kill", "freeze") and len(self._live) > self._fewest:
            member = self._live.pop(self._random.randrange(len(self._live)))
            getattr(self, f"_{what}")(member)
        else:
            return
        self.done[what] += 1

    def _join(self) -> None:
        """Each variant as often as the others, in any order."""
        used = Counter(member.variant for member in self._members.made)
        least = min(used[variant] for variant in self._variants)
        choice = [variant for variant in self._variants if used[variant] == least]
        variant = self._random.choice(choice)
        member, number = self._members.start(
            variant,
            self._group,
            self._topic,
            alone=True,
            session_timeout_ms=SESSION_MS,
            max_poll_records=50,
        )
        member.tell("run", "each", HANDLER_MS)
        self._starting.append((member, number))

    def _leave(self, member: Member) -> None:
        self._leaving.append((member, member.tell("close")))

    def _kill(self, member: Member) -> None:
        self.violent.add(member.name)
        member.kill()

    def _freeze(self, member: Member) -> None:
        self.violent.add(member.name)
        member.freeze()
        self._frozen.append((member, self._turn + self._random.choice(FROZEN_TURNS)))

    def _crash(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        self._broker.start()

    def _look_after(self) -> None:
        """Members that have started are live; the frozen are thawed when it is time."""
        for member, number in list(self._starting):
            if member.answered(number):
                self._starting.remove((member, number))
                self._started(member, number)
        for member, until in list(self._frozen):
            if self._turn >= until:
                member.thaw()
                self._frozen.remove((member, until))
                self._live.append(member)

    def _started(self, member: Member, number: str) -> None:
        try:
            member.answer(number, 2 * DEADLINE)
        except Failed:
            # A client that finds no broker when it starts gives up.
            assert self._broker is not None
            member.kill()
        else:
            self._live.append(member)

    def _write(self, count: int) -> None:
        bootstrap = self._members.bootstrap
        self.written += len(fill(bootstrap, self._topic, count, first=self.written, batch=100))

    def _pass_time(self) -> None:
        end = time.monotonic() + TURN_SECONDS
        with NEWS:
            while (left := end - time.monotonic()) > 0:
                NEWS.wait(left)

    def _settle(self) -> None:
        """All are thawed, all is read, and all leave."""
        for member, _ in self._frozen:
            member.thaw()
        for member, number in self._starting:
            self._started(member, number)
        for member, number in self._leaving:
            member.answer(number, 2 * DEADLINE)
        wait(lambda: len(self.given()) == self.written, self._story, 3 * DEADLINE)
        open_ones = [member for member in self._members.made if not member.host.ended]
        left = {member.name for member, _ in self._leaving}
        for member in open_ones:
            if member.name not in left:
                member.close()

    def _story(self) -> str:
        missing = self.missing()
        return f"all {self.written} read; {len(missing)} are missing: {missing[:20]}"

    # --- afterwards ------------------------------------------------------------------------------

    def given(self) -> Counter[str]:
        return Counter(r.value for member in self._members.made for r in member.records)

    def missing(self) -> list[str]:
        given = self.given()
        return [value for n in range(self.written) if (value := str(n)) not in given]

    def repeated(self) -> dict[str, list[str]]:
        """Value → who read it, where that cannot be explained."""
        return {
            value: [f"{member.name} {member.variant}" for member in some]
            for value, some in unexplained(self._members.made).items()
            if not self.violent & {member.name for member in some}
        }

    def told(self) -> str:
        """What happened, in a line or two."""
        refusals = Counter(
            f"{member.variant}: {error[:60]}"
            for member in self._members.made
            if member.name not in self.violent
            for error in member.uncommitted
        )
        again = sum(times - 1 for times in self.given().values())
        return (
            f"{self.written} messages, {len(self._members.made)} members, {dict(self.done)}; "
            f"{again} came again; commits refused: {dict(refusals)}"
        )
