"""Stories of share groups (KIP-932): they hold on Apache Kafka and on Kumquat.

Java's KafkaShareConsumer and Admin, confluent-kafka's ShareConsumer, Kafka's own kafka-share-groups, and
requests by hand (raw.py) for what no client sends.
Where Kumquat differs on purpose (a back-off before a message comes again, dead letters), a story sets
`retry.backoff.ms` to 0, or says what Kumquat does.
"""
