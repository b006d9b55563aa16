"""Wire protocols in front of the core."""
