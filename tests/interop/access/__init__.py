"""Every API of Kafka as a user who lacks a right: the program that asks, its cases, and a Kafka to ask."""
