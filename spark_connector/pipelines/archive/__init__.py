"""Subjects to Parquet, each message once."""
