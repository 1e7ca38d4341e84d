"""A test broker that leaks, hangs, forgets its data, or hides why it did not start."""

import os
import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kumquat.gateway.testing.broker import BrokerError, TestBroker, broker

pytest_plugins = ["pytester"]
DEADLINE = 90


def write(b: TestBroker, value: bytes) -> int | None:
    """Writes a message to the subject `orders`; its offset."""
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": b.bootstrap})
    producer.produce("orders", value, on_delivery=lambda _e, sent: offsets.append(sent.offset()))
    assert producer.flush(DEADLINE) == 0
    return offsets[0]


def read(b: TestBroker, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": b.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=DEADLINE)]
    finally:
        consumer.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_after_a_kill_it_starts_again_with_its_port_and_data() -> None:
    with broker() as b:
        bootstrap, pid = b.bootstrap, b.pid
        assert write(b, b"1") == 0
        b.kill()
        assert not alive(pid)
        b.start()
        assert (b.bootstrap, b.pid != pid) == (bootstrap, True)
        assert write(b, b"2") == 1
        assert read(b, 2) == [b"1", b"2"]
        assert b.stop() == 0
        assert b.log_text().count("ready on") == 2
        with pytest.raises(BrokerError, match="not running"):
            b.stop()
        b.start()
        with pytest.raises(BrokerError, match="running already"):
            b.start()
        directory = b.directory
    assert not directory.exists()


def test_nobody_gets_its_port_while_it_is_down() -> None:
    with broker() as b:
        b.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", b.port))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", b.port))
        b.start()
        socket.create_connection(("127.0.0.1", b.port)).close()


def test_nothing_is_left_running_when_the_test_fails() -> None:
    pids = []

    def fail() -> None:
        with broker() as b:
            pids.append(b.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not alive(pids[0])


def test_a_broker_that_does_not_start_says_why_at_once() -> None:
    with pytest.raises(BrokerError, match=r"exit code 2\n.*num.partitions") as failed:
        broker(num_partitions=3).__enter__()
    assert "is not allowed" in str(failed.value)


def test_options_reach_the_broker_and_the_environment_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUMQUAT_LOGGING_LEVEL", "nonsense")
    with broker(auto_create_topics_enable=False, node_id=9) as b:
        cluster = AdminClient({"bootstrap.servers": b.bootstrap}).list_topics(timeout=DEADLINE)
        assert list(cluster.brokers) == [9]


def test_a_folder_of_the_callers_is_left_alone(tmp_path: Path) -> None:
    with broker(directory=tmp_path / "mine") as b:
        write(b, b"1")
    with broker(directory=tmp_path / "mine") as b:
        assert read(b, 1) == [b"1"]
    assert (tmp_path / "mine").is_dir()


def test_a_line_that_never_comes_is_an_error_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kumquat.gateway.testing.broker.LOG_SECONDS", 0.01)
    with broker() as b:
        b.wait_for_log("ready on")
        with pytest.raises(BrokerError, match="never logged 'no such'"):
            b.wait_for_log("no such")


def test_the_fixture_is_there_for_anyones_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import socket, pytest

        @pytest.mark.kumquat(node_id=5)
        def test_it(kumquat):
            socket.create_connection(("127.0.0.1", kumquat.port)).close()
            assert kumquat.log_text()
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
