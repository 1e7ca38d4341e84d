"""The scenarios, in the order in which they run."""

from bench.scenarios.delay import DELAY
from bench.scenarios.groups import GROUPS
from bench.scenarios.hostile import HOSTILE
from bench.scenarios.recovery import RECOVERY
from bench.scenarios.requests import REQUESTS
from bench.scenarios.retries import RETRIES
from bench.scenarios.shares import SHARES
from bench.scenarios.sharing import SHARING
from bench.scenarios.spark import SPARK
from bench.scenarios.starting import STARTING
from bench.scenarios.subjects import SUBJECTS
from bench.scenarios.throughput import THROUGHPUT
from bench.scenarios.watching import WATCHING

SCENARIOS = [
    *THROUGHPUT,
    *REQUESTS,
    *STARTING,
    *SUBJECTS,
    *RECOVERY,
    *SHARING,
    *SHARES,
    *RETRIES,
    *GROUPS,
    *DELAY,
    *SPARK,
    *WATCHING,
    *HOSTILE,
]

__all__ = ["SCENARIOS"]
