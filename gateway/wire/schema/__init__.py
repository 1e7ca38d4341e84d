"""Kafka's messages, each declared once for all its versions; one module per family of APIs."""
