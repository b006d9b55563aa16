"""Bytes on disk: the commit log, its frames, indexes over it, and the file system as an argument."""
