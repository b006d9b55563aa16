"""The SQL of a cluster's logs and leases. What each does: cluster/engine/database.py.

A statement that moves heads names their epoch and their end in its WHERE. Everything else about a shard's log is done
with the shard's row locked against that (`HOLD`), after a look at its epoch.
"""

from __future__ import annotations

from typing import Final

_HEAD: Final = "shard, durability, epoch, owner, end_position, wanted, restored"
HEADS: Final = f"select {_HEAD} from shard order by shard"
CERTAIN_HEADS: Final = f"""
update shard set end_position = end_position where shard = any($1::int[]) returning {_HEAD}"""
"""A commit that waits for a synchronous standby, and whose client stops waiting, is ended by the server: all see it
from then on, and the standby may lack it. A later commit whose end is told has waited for all of before."""
ALL_CERTAIN_HEADS: Final = f"""
with certain as (update shard set end_position = end_position where shard = $1)
select {_HEAD} from shard order by shard"""
"""One statement, so one server says it and makes the commit. What it shows is of before that commit."""

TAKE_LONG: Final = "set local statement_timeout = {ms}; set local idle_in_transaction_session_timeout = 0"
"""The latter counts while a statement is on its way to the server."""

_MOVE: Final = """
with wanted as (
    select * from unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) as w(shard, epoch, start, stop)
), moved as (
    update shard set end_position = wanted.stop from wanted
    where shard.shard = wanted.shard and shard.epoch = wanted.epoch and shard.end_position = wanted.start
    returning shard.shard
)"""

COMMIT_ROWS: Final = f"""{_MOVE}, added as (
    insert into wal
    select p.* from unnest($5::int[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[])
        as p(shard, start, stop, crc, segment, frames) join moved using (shard)
) select shard from moved"""

COMMIT_OBJECT: Final = f"""{_MOVE}, stored as (
    insert into object (key, size) select $5, $6 where exists (select from moved)
), added as (
    insert into piece
    select p.shard, p.start, p.stop, p.crc, p.segment, $5, p.at
    from unnest($7::int[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
        as p(shard, start, stop, crc, segment, at) join moved using (shard)
) select shard from moved"""

HEAD: Final = f"select {_HEAD} from shard where shard = $1"
PIECES: Final = """
select start_position, end_position, crc, segment, key, at from piece where shard = $1
union all
select start_position, end_position, crc, segment, '', 0 from wal where shard = $1
order by 1"""
FILES: Final = "select path, key, size, crc from file where shard = $1 order by path"
FRAMES: Final = """
select start_position, end_position, crc, segment, '', 0, frames from wal
where shard = $1 and start_position < $3 and end_position > $2 order by 1"""

HOLD: Final = "select from shard where shard = $1 and epoch = $2 for no key update"
"""Two who change what the log of a shard consists of wait for each other: one that removes what another one has just
put in its place would not see that. It writes to the log of the server: a transaction with nothing but this waits for a
synchronous standby, as CERTAIN_HEADS does."""
LOCK_OBJECTS: Final = "select from object where key = any($1::text[]) order by key for update"
"""Two who remove the last two pieces of an object wait for each other: one of them sees that none is left."""

REMOVE_PIECES: Final = """
delete from piece using unnest($2::bigint[], $3::bigint[], $4::text[]) as w(start, stop, key)
where piece.shard = $1 and start_position = w.start and end_position = w.stop and piece.key = w.key"""
REMOVE_ROWS: Final = """
delete from wal using unnest($2::bigint[], $3::bigint[]) as w(start, stop)
where wal.shard = $1 and start_position = w.start and end_position = w.stop"""
ADD_OBJECT: Final = "insert into object (key, size) values ($1, $2) on conflict do nothing"
IS_ALIVE: Final = "select from object where key = $1 and dead is null for share"
"""Asked right after it was added: somebody may have condemned it."""
ADD_PIECE: Final = "insert into piece values ($1, $2, $3, $4, $5, $6, $7)"
ARE_THERE: Final = """
select count(*) from piece join unnest($2::bigint[], $3::bigint[], $4::text[]) as w(start, stop, key)
on start_position = w.start and end_position = w.stop and piece.key = w.key where piece.shard = $1"""
KEYS_BEFORE: Final = "select distinct key from piece where shard = $1 and end_position <= $2"
DROP_PIECES: Final = "delete from piece where shard = $1 and end_position <= $2"
DROP_ROWS: Final = "delete from wal where shard = $1 and end_position <= $2"
MARK_DEAD: Final = """
update object set dead = clock_timestamp() where key = any($1::text[]) and dead is null
and not exists (select from piece where piece.key = object.key)
and not exists (select from file where file.key = object.key)"""

FILE_KEYS: Final = "select key from file where shard = $1 and path = any($2::text[])"
PUT_FILE: Final = """
insert into file (shard, path, key, size, crc) values ($1, $2, $3, $4, $5)
on conflict (shard, path) do update set key = excluded.key, size = excluded.size, crc = excluded.crc"""
REMOVE_FILES: Final = "delete from file where shard = $1 and path = any($2::text[])"

DEAD_OBJECTS: Final = """
select key from object where dead < clock_timestamp() - make_interval(secs => $1)
and (size > 0 or dead < clock_timestamp() - make_interval(secs => $2))
and not exists (
    select from pin where pin.until > clock_timestamp() and pin.since <= object.dead + interval '1 min'
) limit 1000 for update of object skip locked"""
"""What is told is deleted from the store for good, so it is locked: that is a commit, as CERTAIN_HEADS is, behind those
by which these objects died. What somebody else has locked is told another time.

The transaction in which an object died may have ended after the snapshot that a pin was made for: there it is in use.
No transaction takes a minute."""
CONDEMN: Final = """
insert into object (key, size, dead) select key, 0, clock_timestamp() from unnest($1::text[]) as w(key)
on conflict do nothing"""
KNOWN: Final = "select key from object where key = any($1::text[])"
CONDEMNED_AMONG: Final = """
select key from object where key = any($1::text[]) and dead is not null and size = 0
order by key for update"""
"""A commit, too, if there are any: the call that has condemned them may have been given up."""
FORGET_OBJECTS: Final = "delete from object where key = any($1::text[]) and dead is not null"

LINEAGE: Final = "select at from format where number = 1"
"""When the tables were made, or filled, or the cluster was brought back: no two of these have one microsecond."""
NEW_LINEAGE: Final = "update format set at = clock_timestamp() where number = 1"
REGISTER: Final = """
insert into node (number, host, port, rack, doors, lease_until, format)
values ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6), $7) returning incarnation"""
SESSION_LOCK: Final = "select pg_advisory_lock_shared(77, $1)"
"""77 is this program's number for locks of incarnations. Shared, so that a session takes it while the one that it
replaces has it still. Nobody else takes it: others only see in pg_locks that it is held, however it was taken."""
RENEW: Final = """
update node set lease_until = clock_timestamp() + make_interval(secs => $2) where incarnation = $1
returning incarnation"""
OWNED: Final = f"select {_HEAD} from shard where owner = $1 order by shard"

_LOCK_HELD: Final = """exists (
    select from pg_locks where locktype = 'advisory' and classid = 77 and objid = node.incarnation::oid and granted
    and database = (select oid from pg_database where datname = current_database())
)"""
ALIVE: Final = f"""(
    node.lease_until > clock_timestamp() and (
        {_LOCK_HELD}
        or node.born > clock_timestamp() - interval '2 s'
        or pg_postmaster_start_time() > clock_timestamp() - interval '3 s'
        or coalesce(pg_last_xact_replay_timestamp(), '-infinity') > clock_timestamp() - interval '6 s'
    )
)"""
"""A new node has not taken its lock yet; after a restart of the database nobody has, and none on a standby that has
just taken over (what it replayed last was the primary's last commit). None of this is a death."""
_GONE: Final = """(
    node.lease_until < clock_timestamp() - interval '1 h' and not exists (select from shard where owner = incarnation)
)"""
"""For so long that it is not shown any more."""
_LAPSED: Final = "lease_until <= clock_timestamp() and lease_until > clock_timestamp() - interval '1 min'"
NODES: Final = (
    f"select incarnation, number, host, port, rack, {ALIVE}, draining, doors, format, stores, {_LAPSED} from node "
    f"where not {_GONE} order by incarnation"
)
TAKE: Final = f"""
update shard set owner = $3, epoch = epoch + 1 where shard = $1 and epoch = $2
and exists (select from node where incarnation = $3 and lease_until > clock_timestamp())
and not exists (select from node where incarnation = shard.owner and incarnation <> $3 and {ALIVE})
returning {_HEAD}"""
HAND_OVER: Final = f"""
update shard set owner = $3, epoch = epoch + 1, wanted = null where shard = $1 and epoch = $2
and exists (select from node where incarnation = $3 and {ALIVE})
returning {_HEAD}"""
CAN_STORE: Final = "update node set stores = $2 where incarnation = $1"
NOW_MS: Final = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
BEGUN_ANEW: Final = "update shard set restored = false where shard = $1 and epoch = $2 returning shard"
LEAVE: Final = "update node set lease_until = clock_timestamp() - interval '1 min' where incarnation = $1"
"""A node whose lease has ended just now may live (`Node.lapsed`); one that has left does not."""
WANT: Final = "update shard set wanted = $2 where shard = $1 returning shard"
DRAIN: Final = f"update node set draining = $2 where number = $1 and {ALIVE} returning incarnation"
BURY: Final = f"delete from node where {_GONE}"
