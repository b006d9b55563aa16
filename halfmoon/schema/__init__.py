"""The file format: control records, and what a snapshot holds. Plain structs; no rule of the broker is applied here.

Whoever reads a data directory from outside (backup, inspection, repair) needs nothing but this to decode it. Fields are
only ever added at the end, with a default, so that a newer program reads an older log.
"""
