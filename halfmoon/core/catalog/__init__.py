"""What control records make up: topics and partitions, and one section for each feature that keeps state in the log."""
