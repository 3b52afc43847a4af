-- Activities whose time is over. The caller retries or ends each, guarded by token and deadline.
-- A running attempt is timed out only if its worker has lived to see it (it has renewed its lease since): if it has
-- not, it may be dead, and then the attempt is released for that, which uses up no retry.
-- $1 limit. Returns: a row each, with the timeout that ran out. Locks: none. Index: activity_deadline.
select a.shard, a.namespace, a.instance_id, a.run_id, a.ref, a.execution_id, a.activity, a.queue, a.token,
       a.attempt, a.deadline, a.retry, a.last_failure,
       case when a.scheduled_at + make_interval(secs => a.schedule_to_close) <= aioflow.clock() then 'schedule_to_close'
            when a.owner is null then 'schedule_to_start'
            when a.started_at + make_interval(secs => a.start_to_close) <= aioflow.clock() then 'start_to_close'
            else 'heartbeat' end as timeout
  from aioflow.activity a
 where a.deadline <= aioflow.clock()
   and (a.owner is null or a.scheduled_at + make_interval(secs => a.schedule_to_close) <= aioflow.clock()
        or exists (select from aioflow.worker w where w.worker_id = a.owner and w.seen_at >= a.deadline))
 order by a.deadline
 limit $1
