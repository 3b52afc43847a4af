-- Activities of a run that have no outcome yet. $1 shard, $2 run, $3 limit. Locks: none. Index: primary key.
select a.ref, a.execution_id, a.activity, a.queue, a.token, a.attempt, a.deliveries, a.crashes,
       a.isolation = 2 as quarantined, a.scheduled_at, a.started_at,
       a.visible_at, a.deadline, a.heartbeat_at, a.last_failure, w.identity as worker
  from aioflow.activity a left join aioflow.worker w on w.worker_id = a.owner
 where a.shard = $1 and a.run_id = $2
 order by a.scheduled_at, a.ref
 limit $3
