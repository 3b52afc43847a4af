-- breaking: yes
-- All tables. No triggers, no foreign keys, no sequences: consistency comes from the protocol, and is
-- verified from outside by sql/invariant_*.sql. Text keys collate "C": byte order, the same in Python.

-- The only source of time. Stable, so that an index can be used with it; evaluated anew for each row.
-- plpgsql keeps its plan for the session; a function in SQL would be planned by every statement.
create function aioflow.clock() returns timestamptz
  language plpgsql stable parallel safe
  as 'begin return pg_catalog.clock_timestamp(); end';

-- First byte of sha256(utf8(namespace '/' instance_id)) modulo 64; aioflow.core.keys.shard_of is its twin.
create function aioflow.shard_of(namespace text, instance_id text) returns smallint
  language sql immutable strict parallel safe
  as $$ select (get_byte(sha256(convert_to(namespace || '/' || instance_id, 'UTF8')), 0) % 64)::smallint $$;

create table aioflow.namespace (
  name        text collate "C" primary key,
  created_at  timestamptz not null default aioflow.clock()
);
insert into aioflow.namespace (name) values ('default');

-- One narrow row per reserved or open instance, with everything the races need. Deleted on close.
-- Owned and idle rows have visible_at = infinity and lie outside the partial index, so that bumps and
-- commits of owned rows are heap-only updates.
create table aioflow.instance_hot (
  shard           smallint not null,
  namespace       text collate "C" not null,
  instance_id     text collate "C" not null,
  run_id          uuid,                                -- null: reserved, not started
  workflow        text collate "C" not null,
  queue           text collate "C" not null,
  build           text,
  priority        smallint not null default 0,
  visible_at      timestamptz not null,                -- claimable from then on
  wake_gen        bigint not null default 1,           -- bumped by every delivery
  ack_gen         bigint not null default 0,           -- the wake_gen the last commit had read
  owner           uuid,                                -- worker that holds the run
  token           uuid,                                -- what the next write of the holder must name
  next_seq        integer not null default 1,
  head            uuid,                                -- token of the last commit
  paused          boolean not null default false,
  sealed          boolean not null default false,      -- about to close: senders are told to come back
  refused         smallint not null default 0,         -- closes refused since the last commit
  attempt         integer not null default 0,          -- claims since the last commit
  crashes         smallint not null default 0,         -- workers that died with it since the last commit
  isolation       smallint not null default 0,         -- 0 none, 1 suspect: runs alone, 2 quarantined: not claimed
  blocked_reason  text,                                -- why the run cannot go on just now
  primary key (shard, namespace, instance_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
create index instance_hot_ready on aioflow.instance_hot (queue, isolation, visible_at) where visible_at < 'infinity';

-- What is kept of an instance after it closed; its status is the one of its current run.
create table aioflow.instance (
  shard        smallint not null,
  namespace    text collate "C" not null,
  instance_id  text collate "C" not null,
  workflow     text collate "C" not null,
  run_id       uuid,                                   -- the current or last run, null while only reserved
  run_count    integer not null default 0,
  created_at   timestamptz not null,
  started_at   timestamptz not null,                   -- of the current run, or of the reservation
  primary key (shard, namespace, instance_id)
);
create index instance_recent on aioflow.instance (namespace, started_at desc, instance_id desc);

create table aioflow.run (
  shard                smallint not null,
  run_id               uuid not null,
  namespace            text collate "C" not null,
  instance_id          text collate "C" not null,
  number               integer not null,               -- 1 is the first run of the instance
  workflow             text collate "C" not null,
  queue                text collate "C" not null,
  build                text,
  status               text collate "C" not null default 'running',
  started_at           timestamptz not null,
  closed_at            timestamptz,
  last_seq             integer,                        -- the terminal event; the outcome is its payload
  cancel_requested_at  timestamptz,
  parent_instance_id   text collate "C",
  parent_run_id        uuid,
  primary key (shard, run_id),
  check (status in ('running', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out', 'continued_as_new'))
) with (fillfactor = 90);

-- Accepted and not yet consumed inputs. gen is the wake_gen its own bump returned: commit order, no sequence.
create table aioflow.inbox (
  shard        smallint not null,
  namespace    text collate "C" not null,
  instance_id  text collate "C" not null,
  gen          bigint not null,
  idx          integer not null,
  kind         text collate "C" not null,
  version      smallint not null,
  ref          text,
  run_id       uuid,                                   -- results only: dropped when the run is not the current one
  accepted_at  timestamptz not null,
  attrs        text,
  payload      bytea,
  primary key (shard, namespace, instance_id, gen, idx)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Append-only; only a commit or a forced close writes it.
create table aioflow.history (
  shard    smallint not null,
  run_id   uuid not null,
  seq      integer not null,
  kind     text collate "C" not null,
  version  smallint not null,
  ref      text,
  at       timestamptz not null,
  attrs    text,
  payload  bytea,
  commit   uuid not null,                              -- token of the commit that wrote it
  primary key (shard, run_id, seq)
);

-- One row per open activity execution: waiting (owner null) or running. Deleted with its outcome.
create table aioflow.activity (
  shard              smallint not null,
  run_id             uuid not null,
  ref                text collate "C" not null,        -- address of the command in the run
  namespace          text collate "C" not null,
  instance_id        text collate "C" not null,
  execution_id       uuid not null,                    -- stable over attempts
  activity           text collate "C" not null,
  queue              text collate "C" not null,
  priority           smallint not null default 0,
  visible_at         timestamptz not null,
  owner              uuid,
  token              uuid,                             -- id of the running attempt
  attempt            integer not null default 1,       -- of the retry policy
  deliveries         integer not null default 0,       -- claims, crashes included
  crashes            smallint not null default 0,      -- workers that died with it since an attempt last ended
  isolation          smallint not null default 0,      -- as of instance_hot
  scheduled_at       timestamptz not null,
  started_at         timestamptz,
  deadline           timestamptz,                      -- the earliest that is running; swept by any worker
  start_to_close     double precision,                 -- seconds, as the next three
  schedule_to_start  double precision,
  schedule_to_close  double precision,
  heartbeat_timeout  double precision,
  heartbeat_at       timestamptz,
  heartbeat          bytea,                            -- details of the last heartbeat, kept for the next attempt
  retry              text,                             -- the policy, as JSON
  last_failure       bytea,
  payload            bytea,
  primary key (shard, run_id, ref)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
create index activity_ready on aioflow.activity (queue, isolation, visible_at) where owner is null;
create index activity_deadline on aioflow.activity (deadline) where deadline is not null;

create table aioflow.timer (
  shard        smallint not null,
  run_id       uuid not null,
  ref          text collate "C" not null,
  namespace    text collate "C" not null,
  instance_id  text collate "C" not null,
  kind         text collate "C" not null default 'workflow',
  due_at       timestamptz not null,
  primary key (shard, run_id, ref)
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
-- Timers of the workflow wake it through instance_hot.visible_at; the others belong to maintenance.
create index timer_due on aioflow.timer (due_at) where kind <> 'workflow';

-- One effect per request key, across the runs of an instance.
create table aioflow.request (
  shard        smallint not null,
  namespace    text collate "C" not null,
  instance_id  text collate "C" not null,
  key          text collate "C" not null,
  kind         text collate "C" not null,
  digest       bytea,
  run_id       uuid,
  outcome      text collate "C" not null,
  expires_at   timestamptz,                            -- null: as long as the instance is kept
  primary key (shard, namespace, instance_id, key)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index request_expiry on aioflow.request (expires_at) where expires_at is not null;

-- One row per start of a worker process; the id is never used again.
create table aioflow.worker (
  worker_id    uuid primary key,
  identity     text not null,
  namespace    text collate "C" not null,
  queues       text[] collate "C" not null,
  workflows    text[] collate "C" not null default '{}',
  activities   text[] collate "C" not null default '{}',
  slots        integer not null default 0,
  build        text,
  claim_epoch  bigint not null default 0,
  lease_until  timestamptz not null,
  dead         boolean not null default false,         -- for ever
  released     boolean not null default false,         -- dead, and nothing is left to release
  blame        text collate "C",                       -- whom its death counts against: none (it said good-bye),
                                                       -- all it held, or only suspects; null: not decided
  started_at   timestamptz not null,
  seen_at      timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- What workers know of workflows, for callers that know only names.
create table aioflow.definition (
  namespace     text collate "C" not null,
  workflow      text collate "C" not null,
  signals       text[] not null default '{}',
  queries       text[] not null default '{}',
  open_signals  boolean not null default false,        -- takes signals of any name
  queue         text collate "C" not null,
  seen_at       timestamptz not null,
  primary key (namespace, workflow)
);
