-- Instances with their current run, the most recently started first.
-- $1 namespace, $2 status (null any; reserved too), $3 workflow (null any), $4 queue (null any), $5 prefix of the id
-- (null any), $6 limit, $7 and $8 started_at and id of the last row of the page before (null: the first page)
-- Locks: none. Index: instance_recent.
select x.shard, x.namespace, x.instance_id, x.workflow, coalesce(r.queue, h.queue) as queue, r.run_id,
       r.number, coalesce(r.status, 'reserved') as status, x.started_at, r.closed_at, h.attempt,
       coalesce(h.blocked_reason, (
         select format('activity %s is quarantined: %s workers in a row died while they ran it', a.activity, a.crashes)
           from aioflow.activity a where h.run_id is not null and a.shard = h.shard and a.run_id = h.run_id
            and a.isolation = 2 order by a.ref limit 1)) as blocked_reason
  from aioflow.instance x
  left join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (x.shard, x.namespace, x.instance_id)
  left join aioflow.run r
    on r.shard = x.shard
   and r.run_id = case when h.instance_id is not null then h.run_id else x.run_id end
 where x.namespace = $1
   and ($2::text is null or coalesce(r.status, 'reserved') = $2)
   and ($3::text is null or x.workflow = $3)
   and ($4::text is null or coalesce(r.queue, h.queue) = $4)
   and ($5::text is null or starts_with(x.instance_id, $5))
   and ($7::timestamptz is null or (x.started_at, x.instance_id) < ($7, $8::text))
 order by x.started_at desc, x.instance_id desc
 limit $6
