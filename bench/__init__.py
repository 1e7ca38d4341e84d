"""Benchmarks side by side with Apache Kafka; `python -m bench --help` lists them."""
