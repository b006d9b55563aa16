"""Kafka's own Java client, driven from Python: a JVM of the test run's, reached through py4j."""
