-- Renew the lease of a process; no row: it was declared dead, for ever.
-- $1 worker, $2 lease in seconds. Locks: its row, in a way that claims in flight do not mind. Index: primary key.
update aioflow.worker w
   set lease_until = aioflow.clock() + make_interval(secs => $2), seen_at = aioflow.clock()
 where w.worker_id = $1 and not w.dead
returning w.worker_id
