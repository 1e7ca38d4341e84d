"""Commands that are requests of Kafka's own protocol, to `--bootstrap`: topics and configs."""
