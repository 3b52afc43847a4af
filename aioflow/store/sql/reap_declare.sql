-- Declare workers dead whose lease is over. Their rows are released by later statements, never by this one.
-- $1 grace in seconds after a server start, in which nobody is declared dead
-- Returns: the workers declared dead. Locks: worker rows for update; one with a claim in flight is left for later.
with late as materialized (
  select w.worker_id from aioflow.worker w
   where not w.dead and w.lease_until < aioflow.clock()
     and pg_postmaster_start_time() + make_interval(secs => $1) < clock_timestamp()
   order by w.worker_id
     for update skip locked
)
update aioflow.worker w set dead = true
  from late l where w.worker_id = l.worker_id
returning w.worker_id
