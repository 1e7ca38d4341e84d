"""Tests of the connector and its pipelines, with a real Spark and a real broker."""
