"""The log and what is built on it. Knows no wire protocol, no event loop and no clock."""
