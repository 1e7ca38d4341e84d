"""A real Kumquat broker for your tests, in one line: its own process, a free port, a temporary folder.

    from kumquat.testing import broker

    with broker() as b:
        producer = KafkaProducer(bootstrap_servers=b.bootstrap)

Options are the broker's own, with _ for each dot (`kumquat serve --help` lists them):

    with broker(message_max_bytes=1_000_000, auto_create_topics_enable=False) as b: ...

A test can kill it and start it again, as often as it likes. Port and data stay the same:

    with broker() as b:
        producer.send("orders", b"1").get()
        b.kill()                      # SIGKILL, as in a crash: the process can flush nothing
        b.start()
        assert read_all(b.bootstrap, "orders") == [b"1"]
        assert b.stop() == 0          # SIGTERM; waits, and returns the exit code
        assert "stopped" in b.log_text()
    # while the broker runs, b.wait_for_log("…") waits until a line has this text

In pytest the fixture `kumquat` is such a broker, a new one for each test. A marker sets its options:

    @pytest.mark.kumquat(log_segment_bytes=65536)
    def test_rolls(kumquat):
        producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)

`b.admin` is the URL of its admin endpoint (HTTP and JSON), on a new free port after each start.

`broker(directory=path)` keeps the data in a folder of yours and leaves it there at the end.
Variables KUMQUAT_… of the test's own environment do not reach the broker, and modules in the folder
where the tests run do not either: a `trio.py` or `core/` of your project is not in its way.
"""

from kumquat.gateway.testing.broker import BrokerError, TestBroker, broker

__all__ = ["BrokerError", "TestBroker", "broker"]
