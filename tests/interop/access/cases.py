"""What is asked of each API, and the rights that it needs: the rows of NEEDS as questions.

A case is asked by a super user, by a user with nothing, by one with all rights that are needed, by one who lacks one of
them, for each, and by one with what stands `instead`. Where something is described, Describe is replaced by Write (or
Read), and DescribeConfigs by AlterConfigs, which imply it.
"""

from __future__ import annotations

from tests.interop.access.case import Case
from tests.interop.access.parts import (
    ALL_IDS,
    ALL_TOPICS,
    added_v3,
    begun,
    by_hand,
    by_id,
    by_pattern,
    by_token,
    commit,
    configs,
    consumer_group,
    creation,
    delete_by_id,
    doomed,
    doomed_groups,
    empty_share_group,
    fetched,
    first,
    named,
    of_nobody,
    produced,
    share_acknowledge,
    share_coordinator,
    share_fetch,
    share_fetched,
    share_group,
    share_partition,
    streams_described,
    streams_heartbeat,
    token_of,
    txn_offsets,
    unanswered,
    with_transaction,
    zero,
)

TXN = "write transactional_id t"
CASES = [
    Case(key=0, version=9, title="by name", needs=("write topic orders",), fields=lambda w: {
        "acks": -1, "timeout_ms": 9_000, "topic_data": produced(w, ("name orders", "name secret", "name absent"))}),
    Case(key=0, version=13, title="by id", needs=("write topic orders",), fields=lambda w: {
        "acks": -1, "timeout_ms": 9_000, "topic_data": produced(w, ("id orders", "id secret", "id unknown"))}),
    Case(key=0, version=9, title="acks=0", needs=("write topic orders",), ask=lambda w, by, case: unanswered(w, by)),
    Case(key=0, version=12, title="in a transaction", needs=(TXN, "write topic orders"), fields=lambda w: {
        "transactional_id": w["t"], "acks": -1, "timeout_ms": 9_000,
        "topic_data": produced(w, ("name orders", "name secret", "name absent"), w.begin("t"))}),
    Case(key=0, version=12, title="a transaction without its id", needs=("write topic orders",), fields=lambda w: {
        "transactional_id": None, "acks": -1, "timeout_ms": 9_000,
        "topic_data": produced(w, ("name orders",), w.begin("t"))}),
    Case(key=1, version=12, title="by name", needs=("read topic orders",),
         instead=(("read topic orders", "deny describe topic orders"), ("read topic *",), ("read topic ord*",),
                  ("read topic ord*", "deny read topic *")),
         fields=fetched("topic", lambda w: [w[name] for name in ALL_TOPICS])),
    Case(key=1, version=17, title="by id", needs=("read topic orders",),
         fields=fetched("topic_id", lambda w: [w.ids[name] for name in ALL_IDS])),
    Case(key=1, version=12, title="as a replica", needs=("cluster_action cluster",),
         instead=(("read topic orders",),), fields=lambda w: {
             **fetched("topic", lambda w: [w[name] for name in ALL_TOPICS])(w), "replica_id": 99}),
    Case(key=2, version=9, title="", needs=("describe topic orders",), instead=(("read topic orders",),),
         fields=lambda w: {"topics": named(w, "name", "partitions", first(timestamp=-1))}),
    Case(key=3, version=12, title="by name", needs=("describe topic orders",),
         instead=(("read topic orders",), ("delete topic orders",), ("create topic orders",),
                  ("describe_configs topic orders",), ("read topic orders", "deny describe topic orders"),
                  ("describe topic *",)),
         fields=lambda w: {"topics": named(w, "name", None, zero), "allow_auto_topic_creation": False}),
    Case(key=3, version=12, title="by id", needs=("describe topic orders",), fields=lambda w: {
        "topics": [{"name": None, "topic_id": w.ids[name]} for name in ALL_IDS]}),
    Case(key=3, version=11, title="by id", needs=("describe topic orders",),
         fields=lambda w: {"topics": [{"name": None, "topic_id": w.ids[name]} for name in ALL_IDS]}),
    Case(key=3, version=13, title="by name", needs=("describe topic orders",),
         fields=lambda w: {"topics": named(w, "name", None, zero), "allow_auto_topic_creation": False}),
    Case(key=3, version=12, title="all", needs=("describe topic orders",), fields=lambda w: {"topics": None}),
    Case(key=3, version=0, title="all", needs=("describe topic orders",),
         fields=lambda w: {"topics": []}),
    Case(key=3, version=9, title="with operations on topics", needs=("describe topic orders",),
         instead=(("read topic orders", "alter_configs topic orders"),), fields=lambda w: {
             "topics": named(w, "name", None, zero), "allow_auto_topic_creation": False,
             "include_topic_authorized_operations": True}),
    Case(key=3, version=10, title="with operations on the cluster", needs=("describe cluster",),
         instead=(("alter cluster", "create cluster"), ("create cluster",)), fields=lambda w: {
             "topics": [], "include_cluster_authorized_operations": True}),
    Case(key=3, version=12, title="one that is not there yet", needs=("describe topic created", "create topic created"),
         instead=(("describe topic created", "create cluster"), ("create cluster",)),
         before=lambda w: w.delete_topic("created"), fields=lambda w: {
             "topics": named(w, "name", None, zero, ("created",)), "allow_auto_topic_creation": True}),
    Case(key=8, version=9, title="by name", needs=("read group g", "read topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partitions", first(committed_offset=0))}),
    Case(key=8, version=10, title="by id", needs=("read group g", "read topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": by_id(w, "partitions", first(committed_offset=0))}),
    Case(key=9, version=1, title="one group", needs=("describe group g", "describe topic orders"),
         before=commit, fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partition_indexes", zero)}),
    Case(key=9, version=7, title="one group", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partition_indexes", zero)}),
    Case(key=9, version=9, title="groups", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"groups": [
             {"group_id": w[name], "topics": named(w, "name", "partition_indexes", zero)} for name in ("g", "h", "nog")
         ]}),
    Case(key=9, version=10, title="by id", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"groups": [{"group_id": w["g"], "topics": by_id(w, "partition_indexes", zero)}]}),
    Case(key=9, version=7, title="all offsets, one group", needs=("describe group g", "describe topic orders"),
         before=commit, fields=lambda w: {"group_id": w["g"], "topics": None}),
    Case(key=9, version=9, title="all offsets", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"groups": [{"group_id": w[name], "topics": None} for name in ("g", "h", "nog")]}),
    Case(key=10, version=3, title="of a group", needs=("describe group g",),
         fields=lambda w: {"key_type": 0, "key": w["g"]}),
    Case(key=10, version=6, title="of groups", needs=("describe group g",), instead=(("read group g",),),
         fields=lambda w: {"key_type": 0, "coordinator_keys": [w[name] for name in ("g", "h", "nog")]}),
    Case(key=10, version=3, title="of a transactional id", needs=("describe transactional_id t",),
         fields=lambda w: {"key_type": 1, "key": w["t"]}),
    Case(key=10, version=6, title="of transactional ids", needs=("describe transactional_id t",),
         fields=lambda w: {"key_type": 1, "coordinator_keys": [w[name] for name in ("t", "t2", "tabsent")]}),
    Case(key=10, version=6, title="of share partitions", needs=("cluster_action cluster",), before=share_coordinator,
         fields=share_partition),
    Case(key=11, version=9, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "session_timeout_ms": 1, "rebalance_timeout_ms": 1, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}]}),
    Case(key=12, version=4, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "generation_id": 1, "member_id": "m"}),
    Case(key=13, version=2, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "member_id": "m"}),
    Case(key=13, version=5, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "members": [{"member_id": "m"}]}),
    Case(key=14, version=5, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "generation_id": 1, "member_id": "m", "protocol_type": "consumer",
        "protocol_name": "range"}),
    Case(key=15, version=5, title="", needs=("describe group g",), before=commit, fields=lambda w: {
        "groups": [w[name] for name in ("g", "h", "nog")], "include_authorized_operations": True}),
    Case(key=15, version=6, title="", needs=("describe group g",), instead=(("describe group g", "delete group g"),),
         before=commit, fields=lambda w: {
             "groups": [w[name] for name in ("g", "h", "nog")], "include_authorized_operations": True}),
    Case(key=16, version=5, title="", needs=("describe group g",), instead=(("describe cluster",), ("read group g",)),
         before=commit),
    Case(key=17, version=1, title="behind the login", fields=lambda w: {"mechanism": "SCRAM-SHA-256"}),
    Case(key=18, version=4, title="", fields=lambda w: {
        "client_software_name": "access", "client_software_version": "1"}),
    Case(key=19, version=7, title="", needs=("create topic created", "describe_configs topic created"),
         instead=(("create cluster",), ("describe_configs topic created",)),
         before=lambda w: w.delete_topic("created"), fields=lambda w: {
             "validate_only": True, "timeout_ms": 9_000, "topics": [
                 {"name": w[name], "num_partitions": 1, "replication_factor": 1} for name in ("created", "secret", "no")
             ]}),
    Case(key=20, version=5, title="by name", needs=("delete topic doomed",), instead=(("delete cluster",),),
         before=doomed, fields=lambda w: {
             "timeout_ms": 30_000, "topic_names": [w[name] for name in ("doomed", "doomed2", "absent")]}),
    Case(key=20, version=6, title="by id", needs=("delete topic doomed",),
         instead=(("delete topic doomed", "describe topic doomed2"), ("delete cluster",)), before=doomed,
         fields=delete_by_id),
    Case(key=21, version=2, title="", needs=("delete topic orders",), instead=(("write topic orders",),),
         fields=lambda w: {"timeout_ms": 9_000, "topics": named(w, "name", "partitions", first(offset=0))}),
    Case(key=22, version=5, title="with a transactional id", needs=(TXN,),
         instead=(("describe transactional_id t",), ("idempotent_write cluster", "write topic orders")),
         fields=lambda w: {"transactional_id": w["t"], "transaction_timeout_ms": 60_000}),
    Case(key=22, version=6, title="in two phases", needs=(TXN, "two_phase_commit transactional_id t"),
         fields=lambda w: {"transactional_id": w["t"], "transaction_timeout_ms": 60_000, "enable2_pc": True}),
    Case(key=22, version=5, title="without a transactional id", needs=("idempotent_write cluster",),
         instead=(
             ("write topic orders",), ("write topic ord*",), ("write topic *",), ("read topic orders",),
             ("alter topic *",), ("write transactional_id t",), ("write topic *", "deny write topic *"),
             ("write topic orders", "deny write topic *"), ("write topic orders", "deny write topic ord*"),
             ("write topic ord*", "deny write topic orders"), ("write topic *", "deny write topic ord*"),
             ("idempotent_write cluster", "deny write topic *"),
         ), fields=lambda w: {"transactional_id": None, "transaction_timeout_ms": 60_000}),
    Case(key=23, version=4, title="", needs=("describe topic orders",), instead=(("cluster_action cluster",),),
         fields=lambda w: {"topics": named(w, "topic", "partitions", lambda: {"partition": 0, "leader_epoch": 0})}),
    Case(key=24, version=3, title="", needs=(TXN, "write topic orders"), fields=added_v3(("orders",))),
    Case(key=24, version=3, title="several topics", needs=(TXN, "write topic orders"), fields=added_v3(ALL_TOPICS)),
    Case(key=24, version=5, title="as a broker", needs=("cluster_action cluster",),
         instead=((TXN, "write topic orders"),), fields=lambda w: {"transactions": [{
             "transactional_id": w["t"], **begun(w), "verify_only": True,
             "topics": [{"name": w["orders"], "partitions": [0]}]}]}),
    Case(key=25, version=3, title="", needs=(TXN, "read group g"), fields=lambda w: {
        "transactional_id": w["t"], "group_id": w["g"], **begun(w)}),
    Case(key=26, version=3, title="", needs=(TXN,), before=None, fields=lambda w: {
        "transactional_id": w["t"], **begun(w), "committed": True}),
    Case(key=27, version=1, title="", needs=("alter cluster",), instead=(("cluster_action cluster",),),
         fields=lambda w: {"markers": [{"producer_id": 1, "topics": [
             {"name": w["orders"], "partition_indexes": [5]}, {"name": w["absent"], "partition_indexes": [0]}]}]}),
    Case(key=28, version=3, title="", needs=(TXN, "read group g", "read topic orders"), fields=txn_offsets),
    Case(key=28, version=5, title="", needs=(TXN, "read group g", "read topic orders"), fields=txn_offsets),
    Case(key=29, version=3, title="", needs=("describe cluster",), fields=of_nobody),
    Case(key=30, version=3, title="", needs=("alter cluster",), fields=lambda w: {"creations": [creation(w)] * 2}),
    Case(key=31, version=3, title="", needs=("alter cluster",), fields=lambda w: {"filters": [of_nobody(w)]}),
    Case(key=32, version=4, title="", fields=configs(32), needs=(
        "describe_configs topic orders", "describe_configs cluster", "describe_configs group g")),
    Case(key=33, version=2, title="", fields=configs(33), needs=(
        "alter_configs topic orders", "alter_configs cluster", "alter_configs group g")),
    Case(key=44, version=1, title="", fields=configs(44), needs=(
        "alter_configs topic orders", "alter_configs cluster", "alter_configs group g")),
    Case(key=34, version=2, title="", needs=("alter cluster",), fields=lambda w: {
        "dirs": [{"path": "/nowhere", "topics": [
            {"name": w["orders"], "partitions": [0]}, {"name": w["absent"], "partitions": [0]}]}]}),
    Case(key=35, version=2, title="", needs=("describe cluster",),
         fields=lambda w: {"topics": [{"topic": w["orders"], "partitions": [0]}]}),
    Case(key=35, version=4, title="", needs=("describe cluster",),
         fields=lambda w: {"topics": [{"topic": w["orders"], "partitions": [0]}]}),
    Case(key=36, version=2, title="behind the login", fields=lambda w: {"auth_bytes": b"x"}),
    Case(key=37, version=3, title="", needs=("alter topic orders",), fields=lambda w: {
        "timeout_ms": 9_000, "validate_only": True, "topics": [
            {"name": w[name], "count": 2, "assignments": None} for name in ALL_TOPICS]}),
    Case(key=38, version=3, title="of one's own", fields=lambda w: {
        "owner_principal_type": None, "owner_principal_name": None, "max_lifetime_ms": 600_000},
        before=token_of("bob")),
    Case(key=38, version=3, title="for another", needs=("create_tokens user bob",), fields=lambda w: {
        "owner_principal_type": "User", "owner_principal_name": w["bob"], "max_lifetime_ms": 600_000},
        before=token_of("bob")),
    Case(key=39, version=2, title="of one's own", before=token_of("alice"), fields=lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000}),
    Case(key=39, version=2, title="of another", before=token_of("bob"), instead=(
        ("create_tokens user bob",), ("alter cluster",)), fields=lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000}),
    Case(key=39, version=2, title="of nobody", fields=lambda w: {"hmac": b"x" * 64, "renew_period_ms": 600_000}),
    Case(key=40, version=2, title="of one's own", before=token_of("alice"), fields=lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1}),
    Case(key=40, version=2, title="of another", before=token_of("bob"), instead=(
        ("create_tokens user bob",), ("alter cluster",)), fields=lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1}),
    Case(key=41, version=3, title="all", before=token_of("alice"), instead=(
        ("describe_tokens user bob",), ("describe delegation_token TOKEN",), ("describe cluster",)),
        fields=lambda w: {"owners": None}),
    Case(key=41, version=3, title="another's", before=token_of("bob"), instead=(
        ("describe_tokens user bob",), ("describe delegation_token TOKEN",)),
        fields=lambda w: {"owners": [{"principal_type": "User", "principal_name": w["bob"]}]}),
    Case(key=39, version=2, title="as a renewer", before=token_of("bob", "alice"), fields=lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000}),
    Case(key=40, version=2, title="as a renewer", before=token_of("bob", "alice"), fields=lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1}),
    Case(key=41, version=3, title="as a renewer", before=token_of("bob", "alice"), fields=lambda w: {"owners": None}),
    Case(key=38, version=3, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {
        "owner_principal_type": None, "owner_principal_name": None, "max_lifetime_ms": 600_000})),
    Case(key=39, version=2, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000})),
    Case(key=40, version=2, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1})),
    Case(key=41, version=3, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {"owners": None})),
    Case(key=42, version=2, title="", needs=("delete group doomedg",), before=doomed_groups, fields=lambda w: {
        "groups_names": [w[name] for name in ("doomedg", "doomedg2", "nog")]}),
    Case(key=43, version=2, title="", needs=("alter cluster",), fields=lambda w: {
        "topic_partitions": [{"topic": w[name], "partitions": [0]} for name in ("orders", "absent")]}),
    Case(key=45, version=1, title="", needs=("alter cluster",), fields=lambda w: {"topics": [
        {"name": w[name], "partitions": [{"partition_index": 0, "replicas": None}]} for name in ("orders", "absent")]}),
    Case(key=46, version=0, title="", needs=("describe cluster",), fields=lambda w: {"topics": None}),
    Case(key=47, version=0, title="", needs=("delete group g", "read topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partitions", first())}),
    Case(key=47, version=0, title="of no group", needs=("delete group nog", "read topic orders"),
         fields=lambda w: {"group_id": w["nog"], "topics": named(w, "name", "partitions", first())}),
    Case(key=48, version=1, title="", needs=("describe_configs cluster",), fields=lambda w: {
        "components": [{"entity_type": "user", "match_type": 0, "match": w["nobody"]}]}),
    Case(key=49, version=1, title="", needs=("alter_configs cluster",), fields=lambda w: {
        "validate_only": True, "entries": [{
            "entity": [{"entity_type": "user", "entity_name": w["nobody"]}],
            "ops": [{"key": "producer_byte_rate", "value": 1000.0}]}]}),
    Case(key=50, version=0, title="", needs=("describe cluster",), fields=lambda w: {
        "users": [{"name": w[name]} for name in ("alice", "nobody")]}),
    Case(key=51, version=0, title="", needs=("alter cluster",), fields=lambda w: {
        "deletions": [{"name": w["nobody"], "mechanism": 1}, {"name": w["unknown"], "mechanism": 9},
                      {"name": w["twice"], "mechanism": 1}, {"name": w["twice"], "mechanism": 1}],
        "upsertions": [
            {"name": w[name], "mechanism": 1, "iterations": count, "salt": b"s", "salted_password": b"p"}
            for name, count in (("few", 1), ("double", 4096), ("double", 4096))]}),
    Case(key=55, version=2, title="", needs=("describe cluster",), fields=lambda w: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    Case(key=57, version=2, title="", needs=("alter cluster",), fields=lambda w: {"validate_only": True}),
    Case(key=60, version=2, title="", needs=("describe cluster",), instead=(("create cluster",),), fields=lambda w: {
        "include_cluster_authorized_operations": True}),
    Case(key=61, version=0, title="", needs=("read topic orders",), instead=(("describe topic orders",),),
         fields=lambda w: {"topics": named(w, "name", "partition_indexes", zero)}),
    Case(key=64, version=0, title="", needs=("alter cluster",), ask=lambda w, by, case: by_hand(
        by, 64, 0, bytes.fromhex("0000004d") + b"\0")),
    Case(key=65, version=0, title="", needs=("describe transactional_id t", "describe topic orders"),
         before=with_transaction, fields=lambda w: {
             "transactional_ids": [w[name] for name in ("t", "t2", "tabsent")]}),
    Case(key=66, version=1, title="", needs=("describe transactional_id t",), before=with_transaction),
    Case(key=68, version=1, title="by name", needs=("read group cg", "describe topic orders"), fields=lambda w: {
        "group_id": w["cg"], "member_id": "m", "member_epoch": 5, "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [w["orders"]]}),
    Case(key=68, version=1, title="several topics", needs=("read group cg", "describe topic orders"),
         instead=(("read group cg", "describe topic orders", "describe topic secret"),), fields=lambda w: {
             "group_id": w["cg"], "member_id": "m", "member_epoch": 5, "rebalance_timeout_ms": 60_000,
             "subscribed_topic_names": [w[name] for name in ("orders", "secret")]}),
    Case(key=68, version=1, title="by pattern", needs=("read group pattern", "describe topic orders"), ask=by_pattern),
    Case(key=69, version=1, title="", needs=("describe group cg", "describe topic orders", "describe topic secret"),
         before=consumer_group, fields=lambda w: {
             "group_ids": [w[name] for name in ("cg", "nog")], "include_authorized_operations": True}),
    Case(key=74, version=1, title="", needs=("describe_configs cluster",),
         instead=(("describe_configs topic orders",),), fields=lambda w: {"resource_types": [2]}),
    Case(key=74, version=0, title="client metrics", needs=("describe_configs cluster",)),
    Case(key=75, version=0, title="by name", needs=("describe topic orders",), fields=lambda w: {
        "topics": named(w, "name", None, zero), "cursor": None}),
    Case(key=75, version=0, title="all", needs=("describe topic orders",), fields=lambda w: {
        "topics": [], "cursor": None}),
    Case(key=76, version=1, title="by name", needs=("read group sg", "describe topic orders"), fields=lambda w: {
        "group_id": w["sg"], "member_id": "m", "member_epoch": 5, "subscribed_topic_names": [w["orders"]]}),
    Case(key=76, version=1, title="several topics", needs=("read group sg", "describe topic orders"),
         instead=(("read group sg", "describe topic orders", "describe topic secret"),), fields=lambda w: {
             "group_id": w["sg"], "member_id": "m", "member_epoch": 5,
             "subscribed_topic_names": [w[name] for name in ("orders", "secret")]}),
    Case(key=77, version=1, title="", needs=("describe group sg", "describe topic orders", "describe topic secret"),
         before=share_group, fields=lambda w: {
             "group_ids": [w[name] for name in ("sg", "nog")], "include_authorized_operations": True}),
    Case(key=78, version=1, title="", needs=("read group sg", "read topic orders"), before=share_group,
         ask=share_fetched),
    Case(key=78, version=1, title="with an unknown id", needs=("read group sg",), before=share_group,
         fields=lambda w: share_fetch(w, ("unknown",))),
    Case(key=79, version=1, title="", needs=("read group sg", "read topic orders"), before=share_group,
         ask=share_acknowledge),
    Case(key=80, version=0, title="", needs=("alter cluster",), ask=lambda w, by, case: by_hand(
        by, 80, 0, b"\0" + bytes.fromhex("00000001") + bytes.fromhex("0000004d") + b"\1" * 16 + b"\1" + b"\0")),
    Case(key=81, version=0, title="", needs=("alter cluster",), ask=lambda w, by, case: by_hand(
        by, 81, 0, b"\0" + bytes.fromhex("0000004d") + b"\1" * 16 + b"\0")),
    Case(key=88, version=0, title="", needs=("read group stg", "describe topic orders"),
         ask=lambda w, by, case: by_hand(by, 88, 0, streams_heartbeat(w))),
    Case(key=89, version=0, title="", needs=("describe group stg",), ask=lambda w, by, case: streams_described(w, by)),
    Case(key=90, version=1, title="", needs=("describe group sg", "describe topic orders"), before=empty_share_group,
         fields=lambda w: {"groups": [
             {"group_id": w[name], "topics": named(w, "topic_name", "partitions", zero)} for name in ("sg", "nog")]}),
    Case(key=90, version=1, title="all topics", needs=("describe group sg", "describe topic orders"),
         before=empty_share_group, fields=lambda w: {"groups": [{"group_id": w["sg"], "topics": None}]}),
    Case(key=91, version=0, title="", needs=("read group sg", "read topic orders"), before=empty_share_group,
         fields=lambda w: {"group_id": w["sg"], "topics": named(w, "topic_name", "partitions", first(start_offset=0))}),
    Case(key=92, version=0, title="", needs=("delete group sg", "read topic orders"), before=empty_share_group,
         fields=lambda w: {"group_id": w["sg"], "topics": named(w, "topic_name", None, zero)}),
]  # fmt: skip
NOT_ASKED = {
    71: "telemetry, which needs nothing: offered where a receiver is installed",
    72: "as 71",
    83: "between brokers: ClusterAction",
    84: "as 83",
    85: "as 83",
    86: "as 83",
    87: "as 83",
}
