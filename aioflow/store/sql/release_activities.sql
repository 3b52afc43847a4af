-- Give attempts back that were not finished (a worker drains): the delivery does not count, nor is it blamed.
-- $1.. arrays: shard, run, ref, attempt token
-- Returns: ord and queue of those released. Locks: activity rows in key order. Index: primary key.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::uuid[], $3::text[], $4::uuid[])
       with ordinality as i(shard, run_id, ref, token, ord)
), mine as materialized (
  select i.ord, a.shard, a.run_id, a.ref
    from item i join aioflow.activity a on (a.shard, a.run_id, a.ref) = (i.shard, i.run_id, i.ref)
   where a.token = i.token
   order by a.shard, a.run_id, a.ref
     for no key update of a skip locked
)
update aioflow.activity a
   set owner = null, token = null, started_at = null, visible_at = aioflow.clock(),
       deliveries = greatest(0, a.deliveries - 1),
       deadline = least(aioflow.clock() + make_interval(secs => a.schedule_to_start),
                        a.scheduled_at + make_interval(secs => a.schedule_to_close))
  from mine m
 where (a.shard, a.run_id, a.ref) = (m.shard, m.run_id, m.ref)
returning m.ord, a.queue
