"""Options that are misread, slip through, or are refused without saying where and why."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.gateway.config.declare import show
from kumquat.gateway.config.errors import BadOptions
from kumquat.gateway.config.kafka_only import why_kafka_only
from kumquat.gateway.config.kinds import AdminListener
from kumquat.gateway.config.options import OPTIONS, BrokerConfig, Listener
from kumquat.gateway.config.sources import Setting, explain_unknown, load, read_file
from kumquat.meta.definitions import DEFINITIONS, effective, validate

HOUR = 3_600_000


def flags(**options: object) -> list[Setting]:
    names = {name: name.replace("_", ".") for name in options}
    return [Setting(names[n], str(v), "--" + names[n]) for n, v in options.items()]


def refusal(**options: object) -> str:
    with pytest.raises(BadOptions) as refused:
        load(given=flags(**options))
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_is_a_value_that_could_be_given(name: str) -> None:
    option = OPTIONS[name]
    text = show(option.default)
    if text is not None:
        assert option.kind.parse(text) == option.default
    assert option.doc.endswith(".")


def test_a_later_source_wins_over_an_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=2\nmax.connections=2\nfetch.max.bytes=2000\n")
    environ = {"KUMQUAT_MAX_CONNECTIONS": "3", "KUMQUAT_FETCH_MAX_BYTES": "3000", "HOME": "/"}
    config = load(file, environ, flags(fetch_max_bytes=4000))
    assert (config.node_id, config.max_connections, config.fetch_max_bytes) == (2, 3, 4000)
    assert config.log_segment_bytes == 1 << 30


def test_within_a_source_the_last_mention_counts() -> None:
    assert load(given=[*flags(node_id=2), *flags(node_id=3)]).node_id == 3


def test_broker_id_is_another_name_of_node_id() -> None:
    assert load(given=flags(broker_id=7)).node_id == 7
    assert load(environ={"KUMQUAT_BROKER_ID": "8"}).node_id == 8


def test_a_bad_value_is_an_error_even_where_a_later_source_hides_it() -> None:
    with pytest.raises(BadOptions, match=r"KUMQUAT_NODE_ID: node.id='x' is not allowed"):
        load(environ={"KUMQUAT_NODE_ID": "x"}, given=flags(node_id=3))


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("message_max_bytes", "1MB", "a whole number from 0 to 2147483647"),
        ("message_max_bytes", "-1", "a whole number from 0"),
        ("message_max_bytes", "", "a whole number from 0"),
        ("log_retention_ms", "0", "a whole number from 1 to 9223372036854775807, or -1"),
        ("log_segment_bytes", "2147483648", "to 2147483647"),
        ("auto_create_topics_enable", "yes", "true or false"),
        ("logging_level", "TRACE", "one of DEBUG, INFO, WARNING, ERROR"),
        ("num_partitions", "3", "exactly one partition"),
        ("log_dirs", "/a,/b", "one folder only"),
        ("log_dirs", "", "the path of a folder"),
        ("listeners", "127.0.0.1:9092", "PLAINTEXT://host:port"),
        ("listeners", "PLAINTEXT://127.0.0.1", "PLAINTEXT://host:port"),
        ("listeners", "PLAINTEXT://127.0.0.1:65536", "PLAINTEXT://host:port"),
        ("listeners", "PLAINTEXT://::1:9092", "PLAINTEXT://host:port"),
        ("listeners", "", "PLAINTEXT://host:port"),
        ("listeners", "SASL_SSL://:9092", "SASL_SSL is not served yet"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093", "no controller"),
        ("listeners", "INTERNAL://:9092", "'INTERNAL' is not known"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://a:1", "there twice"),
        ("admin_listener", "PLAINTEXT://127.0.0.1:9093", "expected HTTP://127.0.0.1:port"),
        ("admin_listener", "127.0.0.1:9093", "expected HTTP://127.0.0.1:port"),
        ("admin_listener", "HTTP://127.0.0.1:65536", "expected HTTP://127.0.0.1:port"),
        ("admin_hosts", "a.example:9093", "host names or addresses without ports"),
        ("admin_hosts", "http://a.example", "host names or addresses without ports"),
        ("delay_enabled", "1", "true or false"),
        ("delay_max_ms", "0", "a whole number from 1 to 3153600000000"),
        ("delay_cancel_remember_ms", "-1", "a whole number from 0"),
    ],
)
def test_a_bad_value_is_named_with_its_place_and_what_is_allowed(
    option: str, value: str, allowed: str
) -> None:
    message = refusal(**{option: value})
    name = option.replace("_", ".")
    assert message.startswith(f"--{name}: {name}={value!r} is not allowed: ")
    assert allowed in message


def test_listeners_of_all_shapes_are_understood() -> None:
    text = "PLAINTEXT://localhost:0, plaintext://[::1]:9093,PLAINTEXT://:9094"
    config = load(given=flags(listeners=text))
    expected = (Listener("localhost", 0), Listener("::1", 9093), Listener("", 9094))
    assert config.listeners == expected
    assert show(config.listeners) == (
        "PLAINTEXT://localhost:0,PLAINTEXT://[::1]:9093,PLAINTEXT://:9094"
    )
    assert config.advertised(0, 4567) == Listener("localhost", 4567)
    assert config.advertised(2, 9094).host not in ("", "0.0.0.0")


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("HTTP://127.0.0.1:9093", AdminListener("127.0.0.1", 9093)),
        ("http://LOCALHOST:0", AdminListener("localhost", 0)),
        ("HTTP://[::1]:1", AdminListener("::1", 1)),
        ("HTTP://127.8.9.1:1", AdminListener("127.8.9.1", 1)),
    ],
)
def test_admin_listeners_on_loopback_are_understood(text: str, listener: AdminListener) -> None:
    config = load(given=flags(admin_listener=text))
    assert config.admin_listener == listener
    assert load(given=flags(admin_listener=show(listener))).admin_listener == listener


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (":9093", "every interface"),
        ("0.0.0.0:9093", "0.0.0.0"),
        ("[::]:9093", "::"),
        ("10.0.0.1:9093", "10.0.0.1"),
        ("a.example:9093", "a.example"),
    ],
)
def test_other_machines_reach_the_admin_endpoint_only_if_that_is_wanted(
    address: str, host: str
) -> None:
    text = f"HTTP://{address}"
    message = refusal(admin_listener=text)
    assert message.startswith(f"admin.listener={text} and admin.allow.remote=false do not fit")
    assert f"{host!r} is not this machine alone" in message
    assert message.endswith("(admin.listener from --admin.listener)")
    config = load(given=flags(admin_listener=text, admin_allow_remote="true"))
    assert show(config.admin_listener) == text


def test_names_of_the_admin_endpoint_are_understood() -> None:
    config = load(given=flags(admin_hosts="Broker.example, 10.0.0.1,[FE80::1]"))
    assert config.admin_hosts == ("broker.example", "10.0.0.1", "fe80::1")
    assert load().admin_hosts == ()


def test_without_being_asked_there_is_no_admin_endpoint() -> None:
    assert load().admin_listener is None


def test_clients_are_told_the_advertised_address() -> None:
    config = load(
        given=flags(
            listeners="PLAINTEXT://0.0.0.0:9092",
            advertised_listeners="PLAINTEXT://broker.example:19092",
        )
    )
    assert config.advertised(0, 9092) == Listener("broker.example", 19092)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "at which address clients find this broker"),
        ({"listeners": "PLAINTEXT://[::]:1"}, "at which address clients find this broker"),
        ({"advertised_listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "as many of one"),
        ({"advertised_listeners": "PLAINTEXT://:9092"}, "a host and a port"),
        ({"advertised_listeners": "PLAINTEXT://a:0"}, "a host and a port"),
        ({"message_max_bytes": 200_000_000}, "would never arrive"),
        ({"socket_request_max_bytes": 2000}, "would never arrive"),
        ({"log_total_bytes": 1 << 30}, "at least twice log.segment.bytes"),
    ],
)
def test_options_that_do_not_fit_together_are_named_with_their_places(
    options: dict[str, object], reason: str
) -> None:
    message = refusal(**options)
    assert reason in message
    assert "do not fit together" in message
    (name,) = options
    assert f"{name.replace('_', '.')} from --{name.replace('_', '.')}" in message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 168 * HOUR),
        ({"log_retention_hours": 2}, 2 * HOUR),
        ({"log_retention_hours": 2, "log_retention_minutes": 3}, 180_000),
        ({"log_retention_hours": 2, "log_retention_minutes": 3, "log_retention_ms": 4}, 4),
        ({"log_retention_minutes": 3, "log_retention_ms": -1}, -1),
        ({"log_retention_minutes": -1}, -1),
        ({"log_retention_hours": -1}, -1),
    ],
)
def test_retention_follows_the_finest_option_that_is_set(
    options: dict[str, object], expected: int
) -> None:
    assert load(given=flags(**options)).retention_ms == expected


def test_the_brokers_options_are_the_defaults_of_subjects() -> None:
    options = {"log_retention_minutes": 1, "message_max_bytes": 77, "log_retention_bytes": 5}
    config = load(
        given=flags(log_message_timestamp_type="LogAppendTime", delay_enabled="FALSE", **options)
    )
    values = effective({}, config.subject_defaults())
    assert not values.delay_enabled
    assert (values.retention_ms, values.max_message_bytes) == (60_000, 77)
    assert (values.retention_bytes, values.log_append_time) == (5, True)
    assert load().subject_defaults().options == {}


def test_every_default_of_a_subject_config_is_allowed_under_any_retention() -> None:
    defaults = load(given=flags(log_retention_ms=1)).subject_defaults()
    for name, definition in DEFINITIONS.items():
        validate(name, defaults.default_of(definition))


def test_describe_shows_every_option_with_value_default_and_doc() -> None:
    rows = {row.name: row for row in load(given=flags(fetch_max_bytes=4000)).describe()}
    assert list(rows) == list(OPTIONS)
    row = rows["fetch.max.bytes"]
    assert (row.value, row.default, row.is_default, row.read_only) == (
        "4000",
        "57671680",
        False,
        True,
    )
    assert rows["auto.create.topics.enable"].value == "true"
    assert rows["log.retention.ms"].value is None
    assert rows["listeners"].is_default


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        BrokerConfig().node_id = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mesage.max.bytes", "unknown option 'mesage.max.bytes'; did you mean message.max.bytes?"),
        ("num.partition", "unknown option 'num.partition'; did you mean num.partitions?"),
        ("nonsense", "unknown option 'nonsense'"),
        ("process.roles", "needs no controller"),
        ("controller.quorum.voters", "needs no controller"),
        ("zookeeper.connect", "needs no controller and no ZooKeeper"),
        ("num.io.threads", "there are no thread pools to size"),
        ("socket.send.buffer.bytes", "the kernel sizes"),
        ("log.dir", "set log.dirs instead"),
        ("log.flush.interval.messages", "synced all the time"),
        ("log.roll.hours", "closed by log.segment.bytes"),
        ("offsets.topic.replication.factor", "in a log of their own"),
        ("transaction.state.log.min.isr", "transactions are not served yet"),
        ("listener.security.protocol.map", "only PLAINTEXT"),
        ("inter.broker.listener.name", "single replica"),
        ("confluent.metrics.enable", "Confluent's"),
    ],
)
def test_an_unknown_option_is_refused_with_a_way_on(name: str, said: str) -> None:
    with pytest.raises(BadOptions) as refused:
        load(given=[Setting(name, "1", "server.properties:3")])
    assert str(refused.value).startswith("server.properties:3: ")
    assert said in str(refused.value)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_slip_in_one_of_our_names_is_not_taken_for_one_of_kafkas(name: str) -> None:
    assert f" {name}" in explain_unknown(name[:-1])


def test_an_unknown_variable_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(BadOptions, match="KUMQUAT_LISTENER; did you mean KUMQUAT_LISTENERS"):
        load(environ={"KUMQUAT_LISTENER": "x"})


def test_variables_that_kubernetes_sets_are_no_options() -> None:
    load(
        environ={
            "KUMQUAT_SERVICE_HOST": "10.0.0.1",
            "KUMQUAT_SERVICE_PORT_KAFKA": "9092",
            "KUMQUAT_BOOTSTRAP": "10.0.0.1:9092",
            "KUMQUAT_PORT": "tcp://10.0.0.1:9092",
            "KUMQUAT_PORT_9092_TCP_ADDR": "10.0.0.1",
        }
    )


PROPERTIES = r"""
# a comment
! another
   node.id = 5
max.connections:6
fetch.max.bytes 7000

log.dirs=/srv/\
         kum\u0071uat
listeners=PLAINTEXT://127.0.0.1:0, \
  # no comment within a value
message.max.bytes=1\
"""


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(PROPERTIES)
    settings = [(s.name, s.text, int(s.origin.rpartition(":")[2])) for s in read_file(file)]
    assert settings == [
        ("node.id", "5", 4),
        ("max.connections", "6", 5),
        ("fetch.max.bytes", "7000", 6),
        ("log.dirs", "/srv/kumquat", 8),
        ("listeners", "PLAINTEXT://127.0.0.1:0, # no comment within a value", 10),
        ("message.max.bytes", "1", 12),
    ]


def test_an_error_in_a_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n\nnum.io.threads=8\n")
    with pytest.raises(BadOptions, match=rf"^{file}:3: num.io.threads is an option of Kafka's"):
        load(file)
    file.write_text("node.id=\\u12\n")
    with pytest.raises(BadOptions, match="four hexadecimal digits"):
        load(file)


def test_a_file_with_several_mistakes_is_not_refused_for_the_first_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=8\nmesage.max.bytes=1\nnode.id=\\u12\nfetch.max.bytes=many\n")
    with pytest.raises(BadOptions) as refused:
        load(file, {"KUMQUAT_LISTENER": "x"}, flags(node_id="x"))
    places = [line.partition(": ")[0] for line in refused.value.complaints]
    assert places == [*(f"{file}:{n}" for n in range(1, 5)), "environment", "--node.id"]


def test_options_that_do_not_fit_together_are_told_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("socket.request.max.bytes=1024\nlog.total.bytes=5\n")
    with pytest.raises(BadOptions) as refused:
        load(file)
    first, second = refused.value.complaints
    assert first.endswith(f"(socket.request.max.bytes from {file}:1)")
    assert second.endswith(f"(log.total.bytes from {file}:2)")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=r"--config: cannot read .*nowhere: No such file"):
        load(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadOptions, match="not UTF-8"):
        load(tmp_path / "binary")


def test_kafkas_own_example_file_is_refused_line_by_line_with_reasons(tmp_path: Path) -> None:
    carried_over = {
        "process.roles": "broker,controller",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "num.network.threads": "3",
        "num.io.threads": "8",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "num.recovery.threads.per.data.dir": "2",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "transaction.state.log.min.isr": "1",
        "log.flush.interval.ms": "1000",
    }
    for name in carried_over:
        assert why_kafka_only(name), name


@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.text(max_size=40), max_size=4))
def test_any_text_gives_a_config_or_one_clear_line(values: dict[str, str]) -> None:
    said = ""
    try:
        load(given=[Setting(name, text, "--set") for name, text in values.items()])
    except BadOptions as error:
        said = str(error)
    assert not said or any(name in said for name in values)


@given(st.text())
def test_any_properties_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.properties"
    file.write_text(text, encoding="utf-8", errors="replace", newline="")
    said = ""
    try:
        list(read_file(file))
    except BadOptions as error:
        said = str(error)
    assert not said or "hexadecimal" in said
