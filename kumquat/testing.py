"""A real broker for your tests: `with broker() as b: …`. kumquat/gateway/testing.py says what it can do."""

from kumquat.gateway.testing.broker import BrokerError, TestBroker, broker

__all__ = ["BrokerError", "TestBroker", "broker"]
