"""What monitoring asks of a broker: its numbers in Prometheus' text format, and whether it is well.

    exposition.py  GET /metrics: `render`, the whole of it
    numbers.py     the numbers of the broker as a whole, read on the event loop
    walk.py        those of subjects and groups, read on the event loop a slice at a time
    selection.py   which subjects and groups have series of their own, where there are many
    families.py    the broker's numbers under their names, for prometheus-client
    rows.py        the lines of subjects and groups
    health.py      GET /health/live and /health/ready
    disk.py        how much is free on the disk

What is shown is counted where it happens, and is there without a scrape. Nothing here changes the broker.

Two sets of names are Kafka's, so that dashboards for it work: those of kafka_exporter (kafka_topic_…,
kafka_consumergroup_…), and those that the JMX exporter gives to a broker's own metrics (kafka_server_…,
kafka_network_…), where ours mean the same. All others begin with kumquat_.
"""
