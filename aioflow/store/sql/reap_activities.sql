-- Release activities of dead workers: the interrupted attempt is delivered again, its retry budget untouched.
-- $1 workers, $2 limit. Returns: the queues of those released. Locks: activity rows, skipping locked ones.
with mine as materialized (
  select a.shard, a.run_id, a.ref
    from aioflow.activity a
   where a.owner = any ($1::uuid[])
   order by a.shard, a.run_id, a.ref
   limit $2
     for no key update skip locked
)
update aioflow.activity a
   set owner = null, token = null, started_at = null, visible_at = aioflow.clock(),
       deadline = least(aioflow.clock() + make_interval(secs => a.schedule_to_start),
                        a.scheduled_at + make_interval(secs => a.schedule_to_close))
  from mine m
 where (a.shard, a.run_id, a.ref) = (m.shard, m.run_id, m.ref)
returning a.queue
