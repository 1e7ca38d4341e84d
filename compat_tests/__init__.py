"""Stories with stock Kafka clients, run against Kumquat and against Apache Kafka."""
