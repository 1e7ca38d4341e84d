"""Tests of what the benchmark itself could get wrong."""
