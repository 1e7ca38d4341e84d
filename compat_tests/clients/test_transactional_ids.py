"""A producer with a transactional id is told at once, and for good, that transactions are not served yet.

Ruled out: a client that asks again until its time-out, and, where a client shows the broker's text, a text
that sends people to look for ACLs. The Java client's story is in java/compat/DataStories.java.
"""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from compat_tests.support import DEADLINE

NOT_YET = pytest.mark.differs("Kafka serves transactions")
TIME_OUT = 10 * DEADLINE
"""Of the client itself. A client that retries until then has failed the story long before."""


@NOT_YET
def test_librdkafka_ends_at_once_and_shows_the_brokers_text(bootstrap: str, name: str) -> None:
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    with pytest.raises(KafkaException) as caught:
        writer.init_transactions(TIME_OUT)
    error = caught.value.args[0]
    assert (error.fatal(), error.retriable()) == (True, False)
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "does not serve transactions" in error.str()
    assert "Leave transactional.id unset" in error.str()


@NOT_YET
def test_kafka_python_ends_at_once_and_speaks_of_no_authorization(
    bootstrap: str, name: str
) -> None:
    writer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    try:
        with pytest.raises(KafkaPythonError) as caught:
            writer.init_transactions()
        assert "InvalidRequestError" in str(caught.value)
    finally:
        writer.close(timeout=1)


@NOT_YET
def test_aiokafka_ends_at_once(bootstrap: str, name: str) -> None:
    async def start() -> None:
        writer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        try:
            with pytest.raises(AioKafkaError):
                await asyncio.wait_for(writer.start(), DEADLINE)
        finally:
            await writer.stop()

    asyncio.run(start())
