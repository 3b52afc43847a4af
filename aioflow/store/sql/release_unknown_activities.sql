-- Release attempts that a worker owns and does not know (the answer of a claim was lost). After worker_epoch only.
-- $1 worker, $2 attempt tokens it knows. Returns: queues. Locks: activity rows in key order.
with mine as materialized (
  select a.shard, a.run_id, a.ref
    from aioflow.activity a
   where a.owner = $1 and a.token <> all ($2::uuid[])
   order by a.shard, a.run_id, a.ref
     for no key update
)
update aioflow.activity a
   set owner = null, token = null, started_at = null, visible_at = aioflow.clock(), deliveries = a.deliveries - 1,
       deadline = least(aioflow.clock() + make_interval(secs => a.schedule_to_start),
                        a.scheduled_at + make_interval(secs => a.schedule_to_close))
  from mine m
 where (a.shard, a.run_id, a.ref) = (m.shard, m.run_id, m.ref)
returning a.queue
