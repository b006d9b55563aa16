-- Backups keep objects from being deleted; what was brought back from one begins anew; nodes say which format they know.

alter table node add column format integer not null default 1;
-- It reaches the object store.
alter table node add column stores boolean not null default true;

-- Its log was brought back to an earlier moment, and nobody has opened it since.
alter table shard add column restored boolean not null default false;

-- Somebody copies what was needed at `since`, and says until when nobody may delete it.
create table pin (
    number integer generated always as identity primary key,
    since timestamptz not null default clock_timestamp(),
    until timestamptz not null
);
