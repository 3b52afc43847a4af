-- Release attempts that a worker owns and does not know (the answer of a claim was lost). After worker_epoch only.
-- $1 worker, $2 attempt tokens it knows. Returns: queues.
-- Locks: hot rows in key order, all of them before any activity row: whoever else waits for several activities (a
-- close deletes them, in the order of the instances) holds those first.
with unknown as materialized (
  select a.shard, a.namespace, a.instance_id, a.run_id, a.ref
    from aioflow.activity a
   where a.owner = $1 and a.token <> all ($2::uuid[])
), locked as materialized (
  select h.shard, h.namespace, h.instance_id
    from aioflow.instance_hot h
    join (select distinct u.shard, u.namespace, u.instance_id from unknown u) t
      on (h.shard, h.namespace, h.instance_id) = (t.shard, t.namespace, t.instance_id)
   order by h.shard, h.namespace, h.instance_id
     for no key update of h
), held as materialized (     -- the window makes every lock come before the first row
  select u.*, count(*) over () as locks
    from locked l join unknown u on (u.shard, u.namespace, u.instance_id) = (l.shard, l.namespace, l.instance_id)
), mine as materialized (
  select a.shard, a.run_id, a.ref
    from held u join aioflow.activity a on (a.shard, a.run_id, a.ref) = (u.shard, u.run_id, u.ref)
   where a.owner = $1 and a.token <> all ($2::uuid[])
   order by a.shard, a.run_id, a.ref
     for no key update of a
)
update aioflow.activity a
   set owner = null, token = null, started_at = null, visible_at = aioflow.clock(), deliveries = a.deliveries - 1,
       deadline = least(aioflow.clock() + make_interval(secs => a.schedule_to_start),
                        a.scheduled_at + make_interval(secs => a.schedule_to_close))
  from mine m
 where (a.shard, a.run_id, a.ref) = (m.shard, m.run_id, m.ref)
returning a.queue
