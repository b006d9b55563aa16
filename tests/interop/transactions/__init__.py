"""Kafka's transactions by four clients: one table of scenarios, a kit for each client."""
