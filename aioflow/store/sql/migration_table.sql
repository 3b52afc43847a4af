-- The record of applied migrations; made before the first one.
create table if not exists aioflow.migration (
  number      integer primary key,
  name        text not null,
  checksum    text not null,
  breaking    boolean not null,
  applied_at  timestamptz not null default pg_catalog.clock_timestamp()
)
