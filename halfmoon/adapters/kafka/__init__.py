"""The Kafka protocol server."""
