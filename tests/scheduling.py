"""Which worker of a parallel run gets which tests, and when: `--dist loadfile` as this project needs it.

A file stays together, since what a module sets up is set up once. Files that share a JVM of the whole run stay together
as well: the JVM starts in one worker. What takes longest comes first, else the last worker ends minutes after the
others. pytest-xdist's own order begins with the files of many tests, and those of a few long ones come last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_SESSION, _PROGRAMS, _ROCKETMQ = "Spark", "Spark's programs", "RocketMQ's Java client"
_TOGETHER = {
    # None of these needs the tests' own session.
    "tests/spark/test_cluster.py": "tests/spark/test_cluster.py",
    "tests/spark/test_connect.py": "tests/spark/test_connect.py",
    "tests/spark/test_pipeline_commands.py": "tests/spark/test_pipeline_commands.py",
    # Beside the session, they start programs with JVMs of their own.
    "tests/spark/test_kill9_pipeline.py": _PROGRAMS,
    "tests/spark/test_demo.py": _PROGRAMS,
    "tests/spark/": _SESSION,
    "tests/test_docs_pipeline.py": _SESSION,
    "tests/clients/rocketmq/": _ROCKETMQ,
}
"""The first that a path begins with says what it belongs to. What is not named is a unit of its own."""

EXPECTED_S = {
    _SESSION: 180,
    _PROGRAMS: 120,
    _ROCKETMQ: 90,
    "tests/spark/test_cluster.py": 60,
    "tests/spark/test_pipeline_commands.py": 60,
    "tests/crash/test_kill9.py": 50,
    "tests/torture/test_torture.py": 45,
    "tests/server/workers/test_suites_again.py": 40,
    "tests/limits/test_rocketmq.py": 36,
    "tests/torture/workers/test_short.py": 35,
    "tests/testing/test_several.py": 35,
    "tests/testing/test_temporary.py": 20,
    "tests/testing/test_rocketmq.py": 20,
    "tests/testing/test_time.py": 15,
    "tests/torture/cluster/test_short.py": 35,
    "tests/spark/test_connect.py": 35,
    "tests/test_readme.py": 35,
    "tests/server/workers/test_importing.py": 45,
    "tests/outbox/test_kill9.py": 40,
    "tests/outbox/test_live.py": 25,
    "tests/outbox/test_databases.py": 20,
    "tests/kafka/test_loop_live.py": 20,
    "tests/server/workers/test_import_served.py": 30,
    "tests/test_docs_cluster.py": 20,
    "tests/server/nodes/test_rebuilding.py": 15,
    "tests/client/live/test_end_to_end.py": 30,
    "tests/fuzz/test_fuzz.py": 28,
    "tests/crash/test_kill9_transactions.py": 27,
    "tests/services/cleaner/test_crash_compaction.py": 25,
    "tests/fuzz/test_fuzz_rocketmq.py": 25,
    "tests/security/test_audit.py": 25,
    "tests/crash/test_kill9_rocketmq.py": 24,
    "tests/crash/test_kill9_delays.py": 24,
    "tests/core/test_crash_points.py": 22,
    "tests/clients/test_compaction.py": 22,
    "tests/clients/test_quotas.py": 21,
    "tests/crash/test_kill9_compaction.py": 20,
    "tests/hostile/test_crowds.py": 20,
    "tests/extremes/test_extremes.py": 20,
    "tests/clients/test_confluent.py": 19,
    "tests/crash/test_dying_disk.py": 18,
    "tests/cli/test_consume.py": 17,
    "tests/clients/test_confluent_share.py": 15,
    "tests/clients/test_kafka_python.py": 14,
    "tests/examples/test_filter_jsonpath.py": 14,
    "tests/services/transactions/test_transaction_crashes.py": 13,
    "tests/services/waiting/test_deliveries.py": 13,
    "tests/hostile/test_rocketmq.py": 9,
    "tests/hostile/test_rules.py": 9,
    "tests/services/transactions/test_producer_transactions_model.py": 13,
    "tests/services/share/test_share_crashes.py": 12,
    "tests/adapters/kafka/test_share_fetches_by_chance.py": 11,
    "tests/plugins/store/transaction/test_half_messages.py": 10,
    "tests/core/test_crashes.py": 10,
    "tests/services/cleaner/test_cleaner_transactions_model.py": 9,
    "tests/services/share/test_share_crash_points.py": 9,
    "tests/server/test_start_errors.py": 8,
    "tests/examples/test_orders.py": 8,
}
"""Seconds that the long units take on two quiet processors, roughly. Only the order counts. `make test` with
`ARGS=--durations=50` says what else belongs here."""
SHORT_TEST_S = 0.02
"""What a test takes in a file that is not named."""

LONG = (
    "tests/benchmarks/test_deaths.py::test_a_worker_dies",
    "tests/benchmarks/test_secure.py::test_each_load_goes_through_both_listeners",
    "tests/crash/test_kill9.py::test_nothing_is_lost_doubled_or_out_of_order[interval]",
    "tests/crash/test_kill9_compaction.py",
    "tests/crash/test_kill9_delays.py::test_each_comes_once_or_is_cancelled[interval]",
    "tests/crash/test_kill9_rocketmq.py::test_nothing_acknowledged_is_lost[interval]",
    "tests/crash/test_kill9_transactions.py::test_transactions_are_there_as_a_whole_or_not_at_all[interval]",
    "tests/fuzz/test_fuzz_rocketmq.py::test_random_cases[20161121]",
    "tests/outbox/test_kill9.py::test_in_each_step[aio-sqlalchemy]",
    "tests/outbox/test_kill9.py::test_in_each_step[sqlalchemy]",
    "tests/outbox/test_kill9.py::test_shop_and_broker_at_any_moment",
    "tests/hooks/test_installed.py::test_a_counter_equals_the_end_offsets_after_kill_9",
    "tests/hostile/test_crowds.py::test_silent_ones_that_are_let_stay_cost_little[10000]",
    "tests/hostile/test_crowds.py::test_who_opens_thousands_of_connections_has_few_at_a_time[silent-10000]",
    "tests/hostile/test_crowds.py::test_who_opens_thousands_of_connections_has_few_at_a_time[one byte-10000]",
    "tests/limits/test_rocketmq.py::test_questions_for_threads_leave_room_for_others",
    "tests/services/cleaner/test_crash_compaction.py::test_dying_at_any_operation_of_the_cleaner_loses_nothing",
    "tests/services/share/test_share_crashes.py",
    "tests/services/transactions/test_transaction_crashes.py::test_dying_at_any_operation[as one]",
    "tests/spark/test_archive.py::test_a_compaction_that_was_killed",
    "tests/spark/test_archive.py::test_large_files_stay",
    "tests/spark/test_archive.py::test_small_files_become_few",
    "tests/spark/test_cluster.py",
    "tests/spark/test_connect.py::test_a_program_with_spark_connect[argument]",
    "tests/spark/test_demo.py::test_a_secured_run_says_who_may_what_and_comes_to_the_same",
    "tests/spark/test_demo.py::test_the_run_and_a_second_one_that_reads_only_what_is_new",
    "tests/spark/test_kill9_pipeline.py",
    "tests/spark/test_pipeline_commands.py::test_a_report_by_batch_and_by_stream_says_what_is_true",
    "tests/spark/test_replay.py::test_a_replay_that_was_killed_goes_on",
    "tests/spark/test_replay.py::test_marks_of_an_earlier_replay_are_not_taken_for_ours",
    "tests/server/nodes/test_nearby_moves.py::test_calls_to_the_store_and_the_database_fail_while_replicas_read[object]",
    "tests/server/nodes/test_nearby_moves.py::test_nodes_stop_and_one_is_cut_off_while_they_serve_readers[object]",
    "tests/server/nodes/test_nearby_moves.py::test_shards_move_while_they_are_read_by_replicas[object]",
    "tests/server/nodes/test_nearby_processes.py",
    "tests/server/nodes/test_rebuilding.py::test_whatever_happened_to_nodes_and_services_the_log_of_a_shard_of_objects",
    "tests/server/nodes/test_returning.py",
    "tests/server/nodes/test_upgrading.py",
    "tests/server/workers/test_import_served.py::test_records_are_there_whoever_serves_them",
    "tests/server/workers/test_import_deaths.py::test_it_may_be_killed_at_each_step",
    "tests/spark/test_reporting.py::test_dead_letters_of_a_broker_that_has_none_yet",
    "tests/spark/test_reporting.py::test_flights_of_the_demo",
    "tests/spark/test_session.py::test_a_session_of_somebody_elses_before_it_does_no_harm",
    "tests/spark/test_success_rate.py::test_a_stream_says_the_truth_whenever_it_is_asked",
    "tests/test_docs_pipeline.py",
)
"""What `make test` leaves to `make test-long`, by the beginnings of names: each takes more than eight seconds of a
processor, and a shorter one beside it tries the same way."""


def is_long(node_id: str) -> bool:
    return node_id.startswith(LONG)


def unit_of(node_id: str) -> str:
    """The name of what stays together."""
    path = node_id.partition("::")[0]
    return next((unit for beginning, unit in _TOGETHER.items() if path.startswith(beginning)), path)


class LongestFirst(LoadScopeScheduling):
    """What `--dist loadfile` stands for in this project."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self.workqueue = _Longest()

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class _Longest(OrderedDict[str, dict[str, bool]]):
    """The units that nobody has yet. The scheduler takes from the front."""

    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        unit = max(self, key=lambda unit: EXPECTED_S.get(unit, SHORT_TEST_S * len(self[unit])))
        return unit, self.pop(unit)
