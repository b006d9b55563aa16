"""What the adapters share: connections over TCP, bytes in and bytes out, with bounded memory; no protocol."""
