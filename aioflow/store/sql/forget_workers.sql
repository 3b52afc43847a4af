-- Drop rows of workers long dead. $1 seconds. Returns: a row each. Locks: the rows, skipping locked ones.
with old as materialized (
  select w.worker_id from aioflow.worker w
   where w.dead and w.released and w.seen_at < aioflow.clock() - make_interval(secs => $1)
     for update skip locked
)
delete from aioflow.worker w using old o where w.worker_id = o.worker_id
returning w.worker_id
