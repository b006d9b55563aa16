-- The tables of a cluster. What they are for: cluster/engine/database.py and cluster/store.py.

create table cluster (
    id text not null,
    shards integer not null
);

create table node (
    incarnation integer generated always as identity primary key,
    number integer not null,
    host text not null,
    port integer not null,
    rack text not null,
    doors text not null,
    born timestamptz not null default clock_timestamp(),
    lease_until timestamptz not null,
    draining boolean not null default false
);

-- Each commit changes a row in place: there is room on its page, and no index on what changes.
create table shard (
    shard integer primary key,
    durability text not null,
    epoch bigint not null default 0,
    owner integer,
    end_position bigint not null default 0,
    wanted integer
) with (fillfactor = 50);

create table object (
    key text primary key,
    size bigint not null,
    created timestamptz not null default clock_timestamp(),
    dead timestamptz
);
create index object_dead on object (dead) where dead is not null;

create table piece (
    shard integer not null,
    start_position bigint not null,
    end_position bigint not null,
    crc bigint not null,
    segment bigint not null,
    key text not null references object,
    at bigint not null,
    primary key (shard, start_position)
);
create index piece_key on piece (key);

-- Frames that are to become objects. They are not compressed: most batches are.
create table wal (
    shard integer not null,
    start_position bigint not null,
    end_position bigint not null,
    crc bigint not null,
    segment bigint not null,
    frames bytea not null,
    primary key (shard, start_position)
);
alter table wal alter frames set storage external;

create table file (
    shard integer not null,
    path text not null,
    key text not null references object,
    size bigint not null,
    crc bigint not null,
    primary key (shard, path)
);
create index file_key on file (key);

create table change (
    version bigint primary key,
    at timestamptz not null default clock_timestamp(),
    records bytea not null,
    crc bigint not null
);

create table snapshot (
    version bigint primary key,
    data bytea not null,
    crc bigint not null
);
