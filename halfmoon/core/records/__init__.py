"""Kafka record batches: their headers, records, compression, and what is searched in them."""
