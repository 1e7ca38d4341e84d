"""Share consumers while the broker stops, is killed, and starts: accepted is done, the rest comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import configure, everything, fill
from compat_tests.members.fixture import SHARE, Members
from compat_tests.members.remote import wait
from compat_tests.retries.stories import Handled, crew, idle
from compat_tests.support import DEADLINE, eventually

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

__all__ = ["crew"]

pytestmark = [
    pytest.mark.differs("Kafka's share coordinator takes seconds for each restart"),
    pytest.mark.long,
]
TOPIC, GROUP = "orders", "workers"


@pytest.mark.parametrize("variant", SHARE)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_share_consumers_go_on_after_a_restart(
    kumquat: TestBroker, crew: Members, variant: str, how: str
) -> None:
    configs = {"share.auto.offset.reset": "earliest", "retry.backoff.ms": "100"}
    configure(kumquat.bootstrap, GROUP, **configs)
    written = len(fill(kumquat.bootstrap, TOPIC, 200))
    crowd = [crew(variant, GROUP, TOPIC) for _ in range(2)]
    for member in crowd:
        member.run(handler_ms=1)
    handled = Handled(crowd)
    for _ in range(3):
        before = handled.count()
        wait(lambda least=before + 50: handled.count() >= least, "some are handled")  # type: ignore[misc]
        handled.mark()
        if how == "stop":
            assert kumquat.stop() == 0
        else:
            kumquat.kill()
        kumquat.start()
        written += len(fill(kumquat.bootstrap, TOPIC, 300, first=written))
    eventually(lambda: idle(kumquat, GROUP, TOPIC), "all is acked", 2 * DEADLINE)
    sent = {str(number) for number in range(written)}
    wait(lambda: handled.ended() == sent, "all are handled")
    assert handled.again() == []
    assert everything(crowd).keys() == sent
    assert not any(member.broken for member in crowd), crowd
