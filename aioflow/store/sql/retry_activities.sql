-- Send failed attempts back to their queue: same row, next attempt. A holder that says so itself is alive, so what
-- it ran is not a suspect any more.
-- $1.. arrays: shard, namespace, instance id, run, ref, attempt token, deadline that must still stand (null: any),
-- delay in seconds, failure
-- Returns: per item found its ord, queue, and whether it is retried; false: the delay ends after schedule-to-close,
-- nothing was changed and the caller ends it. No row: late.
-- Locks: hot rows in key order, all of them before any activity row. Index: primary keys.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::uuid[],
       $7::timestamptz[], $8::float8[], $9::bytea[]) with ordinality
       as i(shard, namespace, instance_id, run_id, ref, token, deadline, delay, failure, ord)
), locked as materialized (
  select h.shard, h.namespace, h.instance_id
    from aioflow.instance_hot h
    join (select distinct i.shard, i.namespace, i.instance_id from item i) t
      on (h.shard, h.namespace, h.instance_id) = (t.shard, t.namespace, t.instance_id)
   order by h.shard, h.namespace, h.instance_id
     for no key update of h
), held as materialized (
  select i.*, count(*) over () as locks
    from locked l join item i on (i.shard, i.namespace, i.instance_id) = (l.shard, l.namespace, l.instance_id)
), found as materialized (
  select i.ord, a.shard, a.run_id, a.ref, a.queue, i.failure, i.deadline is null as alive, aioflow.clock() + make_interval(secs => i.delay) as at,
         a.scheduled_at + make_interval(secs => a.schedule_to_close) as last
    from held i join aioflow.activity a on (a.shard, a.run_id, a.ref) = (i.shard, i.run_id, i.ref)
   where a.token = i.token and (i.deadline is null or a.deadline = i.deadline)
   order by a.shard, a.run_id, a.ref
     for no key update of a
), again as (
  update aioflow.activity a
     set owner = null, token = null, attempt = a.attempt + 1, visible_at = f.at, started_at = null,
         crashes = case when f.alive then 0 else a.crashes end,
         isolation = case when f.alive then 0 else a.isolation end,
         last_failure = f.failure, deadline = least(f.at + make_interval(secs => a.schedule_to_start), f.last)
    from found f
   where (a.shard, a.run_id, a.ref) = (f.shard, f.run_id, f.ref) and (f.last is null or f.at < f.last)
)
select f.ord, f.queue, coalesce(f.at < f.last, true) as retried from found f
