"""The broker's own hot paths, without a network and without clients, timed by pyperf.

python -m benchmarks.micro      all; --fast for a rough look; -o FILE keeps the figures for `pyperf compare_to`
"""
