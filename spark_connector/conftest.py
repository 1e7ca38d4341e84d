"""What the tests of the connector share: one Spark for the whole run (`spark`), and a broker of each
test's own (`kumquat`, which comes with the broker)."""

from kumquat.spark.testing import spark, spark_sockets

__all__ = ["spark", "spark_sockets"]
