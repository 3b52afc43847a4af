-- Take activities that are due, for one worker and of its namespace.
-- $1 worker, $2 its claim epoch, $3 queues in order of preference, $4 activity names it knows, $5 attempt tokens:
-- as many are taken as there are tokens, $6 suspects only (else none of them)
-- Returns: a row per attempt. Locks: own worker row (key share, live and of this epoch) before any other; activity
-- rows, skipping locked ones; no hot row. Index: activity_ready.
with me as materialized (
  select w.namespace from aioflow.worker w
   where w.worker_id = $1 and not w.dead and w.claim_epoch = $2
     for key share
), ready as materialized (
  select a.shard, a.run_id, a.ref
    from unnest($3::text[]) as q(queue)
   cross join lateral (
     select x.shard, x.run_id, x.ref
       from aioflow.activity x
      where x.queue = q.queue and x.isolation = $6::boolean::integer and x.owner is null
        and x.visible_at <= aioflow.clock() and x.activity = any ($4::text[])
        and x.namespace = (select m.namespace from me m)
      order by x.visible_at
      limit cardinality($5::uuid[])
        for no key update skip locked) a
   limit cardinality($5::uuid[])
), numbered as (
  select r.*, ($5::uuid[])[row_number() over ()] as token, aioflow.clock() as now from ready r
)
update aioflow.activity a
   set owner = $1, token = n.token, started_at = n.now, heartbeat_at = null, deliveries = a.deliveries + 1,
       deadline = least(n.now + make_interval(secs => least(a.start_to_close, a.heartbeat_timeout)),
                        a.scheduled_at + make_interval(secs => a.schedule_to_close))
  from numbered n
 where (a.shard, a.run_id, a.ref) = (n.shard, n.run_id, n.ref)
returning a.shard, a.namespace, a.instance_id, a.run_id, a.ref, a.execution_id, a.activity, a.queue, a.token,
          a.attempt, a.deliveries, a.scheduled_at, a.started_at, a.start_to_close, a.schedule_to_close,
          a.heartbeat_timeout, a.heartbeat, a.retry, a.last_failure, a.payload,
          (select r.workflow from aioflow.run r where r.shard = a.shard and r.run_id = a.run_id) as workflow
