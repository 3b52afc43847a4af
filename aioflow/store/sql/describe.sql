-- What is known of instances, or of one run of each.
-- $1.. arrays: shard, namespace, instance id, run (null: the current one)
-- Returns: per item that exists a row. Locks: none. Index: primary keys.
select i.ord, x.shard, x.namespace, x.instance_id, coalesce(r.workflow, x.workflow) as workflow,
       x.run_id as current_run_id, x.run_count, x.created_at,
       r.run_id, r.number, r.queue, r.build, r.status, r.started_at, r.closed_at, r.last_seq, r.cancel_requested_at,
       h.instance_id is not null as open, h.queue as hot_queue, h.next_seq, h.wake_gen, h.ack_gen, h.attempt,
       h.crashes, h.isolation = 2 as quarantined, h.sealed, h.paused, h.owner, nullif(h.visible_at, 'infinity') as visible_at,
       w.identity as worker, coalesce(h.blocked_reason, (
         select format('activity %s is quarantined: %s workers in a row died while they ran it', a.activity, a.crashes)
           from aioflow.activity a where a.shard = r.shard and a.run_id = r.run_id and a.isolation = 2
          order by a.ref limit 1)) as blocked_reason,
       (select count(*) from aioflow.inbox b where (b.shard, b.namespace, b.instance_id)
          = (h.shard, h.namespace, h.instance_id)) as inbox,
       (select count(*) from aioflow.activity a where a.shard = r.shard and a.run_id = r.run_id) as activities,
       (select count(*) from aioflow.timer t where t.shard = r.shard and t.run_id = r.run_id
          and t.kind = 'workflow') as timers,
       (select count(*) from aioflow.worker k where not k.dead and k.lease_until > aioflow.clock()
          and h.queue = any (k.queues)) as workers
  from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[])
       with ordinality as i(shard, namespace, instance_id, run_id, ord)
  join aioflow.instance x
    on (x.shard, x.namespace, x.instance_id) = (i.shard, i.namespace, i.instance_id)
  left join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (x.shard, x.namespace, x.instance_id)
   and (i.run_id is null or h.run_id = i.run_id)
  left join aioflow.run r
    on r.shard = x.shard and r.namespace = x.namespace and r.instance_id = x.instance_id
   and r.run_id = case when i.run_id is not null then i.run_id
                       when h.instance_id is not null then h.run_id else x.run_id end
  left join aioflow.worker w on w.worker_id = h.owner
 where i.run_id is null or r.run_id is not null
 order by i.ord
