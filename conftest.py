"""What all tests have in common: which are long, how Hypothesis draws, who runs what at the same time.

    make test        the short set: all that is not marked `long`, with a fifth of Hypothesis's examples
    make test-all    all tests: what CI runs
    pytest PATH      all tests of that path, one after the other

`@pytest.mark.long` is for a test that takes many seconds and says much: kills in a loop, default sessions
of 45 s, a Spark of its own, each client in each variant. A smaller test in the short set shows the same in
less time. A test with Spark is long by itself, unless it has `@pytest.mark.short`.

The option `--exhaustive` is for those who change storage: it extends two tests to half an hour each
(gateway/tests/test_faults_everywhere.py, test_held_syncs.py).

Hypothesis draws the same examples in each run, and no example is judged by the clock: a change must not be
stopped by chance, or by a busy machine. To look for what has not been found yet:

    pytest --hypothesis-profile explore kumquat/gateway/groups/tests/test_machine.py

With several processes (`pytest -n 2 --dist loadfile`) the tests of a file stay in one process. So do
all tests of Spark: they share one JVM. Files that take long come first, so that no process has work left
when the others have none.

A test depends neither on where the run was started (gateway/tests/surroundings.py) nor on the tests before
it. To look for one that does:

    pytest --shuffle 1 kumquat/gateway/cli
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from kumquat.gateway.tests import surroundings

if TYPE_CHECKING:
    from xdist.remote import Producer

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("same", _PATIENT, derandomize=True, database=None)
settings.register_profile("short", settings.get_profile("same"), max_examples=20)
settings.register_profile("explore", _PATIENT, derandomize=False)
settings.load_profile("same")

SPARK = ("kumquat/spark/", "compat_tests/spark/")
LONGEST = (
    "kumquat/gateway/tests/test_faults_everywhere.py",
    "kumquat/gateway/groups/tests/test_machine.py",
    "kumquat/gateway/testing/tests/",
    "kumquat/gateway/tests/test_delay_wiring.py",
    "kumquat/gateway/process/tests/test_server.py",
    "kumquat/gateway/config/tests/test_config_restart.py",
    "kumquat/gateway/cli/",
)
"""Files that take half a minute or more."""
LINKED = {"core": "core", "gateway": "gateway", "meta": "meta", "spark_connector": "spark"}
"""The folders behind the links in kumquat/, and what the links are called."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="each fault, and thousands of power cuts: an hour"
    )
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="files in another order, and the tests of each"
    )


@pytest.hookimpl(trylast=True)  # the report has the colours that its reader asked for
def pytest_configure(config: pytest.Config) -> None:
    surroundings.settle(config.rootpath / ".cache" / "home")
    config.addinivalue_line("markers", "long: takes many seconds; `make test` leaves it out")
    config.addinivalue_line("markers", "short: with Spark, and yet in `make test`")
    config.args = [_by_its_link(argument, config) for argument in config.args]


def _by_its_link(argument: str, config: pytest.Config) -> str:
    """`core/logs` is `kumquat/core/logs`: as `core.logs` each module would be there a second time."""
    path, separator, test = argument.partition("::")
    absolute = config.invocation_params.dir / path
    if not absolute.is_relative_to(config.rootpath):
        return argument
    top, *below = absolute.relative_to(config.rootpath).parts or (".",)
    if top not in LINKED:
        return argument
    return str(config.rootpath.joinpath("kumquat", LINKED[top], *below)) + separator + test


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With Spark each test takes seconds: it is long, unless it says that it is short."""
    for item in items:
        with_spark = "spark" in getattr(item, "fixturenames", ())
        if with_spark and item.get_closest_marker("short") is None:
            item.add_marker(pytest.mark.long)
    if (seed := config.getoption("shuffle")) is not None:
        _shuffle(items, random.Random(seed))
    elif hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(item.nodeid))


def _place(nodeid: str) -> int:
    """Among several processes: Spark and the longest files first, those of many short tests last."""
    order = (SPARK, LONGEST, "compat_tests/")
    return next((n for n, first in enumerate(order) if nodeid.startswith(first)), len(order))


def _shuffle(items: list[pytest.Item], chance: random.Random) -> None:
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    for tests in files.values():
        chance.shuffle(tests)
    order = list(files.values())
    chance.shuffle(order)
    items[:] = [item for tests in order for item in tests]


class _OneSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(SPARK) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    config.option.loadscopereorder = (
        False  # the order is that of _place, not that of most tests first
    )
    return _OneSpark(config, log) if config.getoption("dist") == "loadfile" else None
