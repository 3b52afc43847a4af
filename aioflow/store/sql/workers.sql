-- Worker processes, live ones first. $1 dead ones too. Locks: none.
select w.worker_id, w.identity, w.namespace, w.queues, w.workflows, w.activities, w.slots, w.build, w.dead, w.released,
       w.lease_until > aioflow.clock() and not w.dead as live, w.started_at, w.seen_at
  from aioflow.worker w
 where $1 or not w.dead
 order by w.dead, w.started_at
