"""The broker's heart: logs, record batches, delivery, the wheel. Knows nothing of Kafka's wire or
of SQL."""
