"""Runs all of them; the options are pyperf's."""

from __future__ import annotations

import pyperf

from benchmarks.micro import append, authorization, codec, fetch, filtering


def main() -> None:
    # pyperf starts each benchmark in processes of its own, which have to find this package again.
    runner = pyperf.Runner(program_args=("-m", "benchmarks.micro"))
    for module in (append, fetch, codec, filtering, authorization):
        module.add(runner)


main()
