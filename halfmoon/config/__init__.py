"""broker.yaml: its sections and values, and what is wrong with them in a sentence."""
