from kumquat.gateway.cli.tests.shared_broker import at, running, topic

__all__ = ["at", "running", "topic"]
