"""Options about looking at a broker: the admin endpoint, its log, metrics, health, the history of messages.

They are fields of BrokerConfig (options.py), which inherits them from here.
"""

from dataclasses import dataclass

from kumquat.gateway.config.declare import option
from kumquat.gateway.config.kinds import ADMIN_LISTENER, HOSTS, AdminListener
from kumquat.meta.catalogue import HISTORY_MODES
from kumquat.meta.values import BOOLEAN, integer, one_of, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchingOptions:
    admin_listener: AdminListener | None = option(  # noqa: RUF009 (it cannot change)
        "admin.listener",
        None,
        ADMIN_LISTENER,
        "Address of the admin endpoint (HTTP and JSON), which has no authentication: it must be on "
        "loopback, unless admin.allow.remote is set. Port 0 is any free port. Not set: there is none.",
    )
    admin_allow_remote: bool = option(
        "admin.allow.remote",
        False,
        BOOLEAN,
        "Whether admin.listener may be an address that other machines reach. There is no authentication "
        "yet: whoever reaches it may read and change everything.",
    )
    admin_hosts: tuple[str, ...] = option(
        "admin.hosts",
        (),
        HOSTS,
        "Names and addresses, without ports, by which browsers and tools on other machines reach the admin "
        "endpoint. A request whose Host is neither one of these nor loopback is refused: a web page could "
        "have made its own name point here.",
    )
    logging_level: str = option(
        "logging.level",
        "INFO",
        one_of("DEBUG", "INFO", "WARNING", "ERROR"),
        "The least important kind of line that is written to stderr.",
    )
    logging_format: str = option(
        "logging.format",
        "text",
        one_of("text", "json"),
        "How lines are written to stderr: for people, or each as a JSON object with time, level, "
        "logger, message and exception.",
    )
    loop_trace_ms: int = option(
        "loop.trace.ms",
        -1,
        whole(1, unlimited=True),
        "Each step of the event loop that takes longer is a line in the log, with what it was for; "
        "to find stalls, at some cost. -1: none.",
    )
    metrics_max_subjects: int = option(
        "metrics.max.subjects",
        1_000,
        integer(0),
        "Subjects that have series of their own in /metrics: the busiest. The others are in the "
        "totals.",
    )
    metrics_max_groups: int = option(
        "metrics.max.groups",
        1_000,
        integer(0),
        "Pairs of a group and a subject that have series of their own in /metrics: those with the most "
        "lag. The others are in the totals.",
    )
    health_disk_min_free_bytes: int | None = option(
        "health.disk.min.free.bytes",
        None,
        whole(0),
        "With less free on the disk of the data folder, /health/ready says that the broker is not ready. "
        "Not set: twice log.segment.bytes, but no more than a tenth of the disk.",
    )
    history: str = option(
        "history",
        "off",
        HISTORY_MODES,
        "Whether the lives of messages are recorded in __kumquat_actions, for subjects that do not set "
        "history: off, sampled or all.",
    )
    history_sample: int = option(
        "history.sample",
        100,
        integer(1),
        "With history=sampled: of one message in so many, for subjects that do not set history.sample.",
    )
    history_buffer_events: int = option(
        "history.buffer.events",
        50_000,
        integer(100),
        "Events that may wait to be written to __kumquat_actions; one about many ranges of messages counts "
        "as many. Further ones are dropped and counted: no client waits for the history.",
    )
