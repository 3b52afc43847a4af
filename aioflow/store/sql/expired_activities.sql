-- Activities whose time is over. The caller retries or ends each, guarded by token and deadline.
-- $1 limit. Returns: a row each, with the timeout that ran out. Locks: none. Index: activity_deadline.
select a.shard, a.namespace, a.instance_id, a.run_id, a.ref, a.execution_id, a.activity, a.queue, a.token,
       a.attempt, a.deadline, a.retry, a.last_failure,
       case when a.scheduled_at + make_interval(secs => a.schedule_to_close) <= aioflow.clock() then 'schedule_to_close'
            when a.owner is null then 'schedule_to_start'
            when a.started_at + make_interval(secs => a.start_to_close) <= aioflow.clock() then 'start_to_close'
            else 'heartbeat' end as timeout
  from aioflow.activity a
 where a.deadline <= aioflow.clock()
 order by a.deadline
 limit $1
