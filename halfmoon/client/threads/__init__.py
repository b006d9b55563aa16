"""The client for programs with threads. Import it from halfmoon.client."""
