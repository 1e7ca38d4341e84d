"""The Kafka side of the broker: listeners, connections, dispatch, handlers, options."""
