-- Runs and activities in quarantine. $1 namespace (null: any), $2 limit
-- Returns: a row each; activity and ref are null for a run. Locks: none. Index: instance_hot_ready, activity_ready.
select h.namespace, h.instance_id, h.run_id, h.workflow, null as activity, null as ref, h.crashes
  from aioflow.instance_hot h
 where h.isolation = 2 and h.visible_at < 'infinity' and ($1::text is null or h.namespace = $1)
union all
select a.namespace, a.instance_id, a.run_id, r.workflow, a.activity, a.ref, a.crashes
  from aioflow.activity a left join aioflow.run r on r.shard = a.shard and r.run_id = a.run_id
 where a.isolation = 2 and a.owner is null and ($1::text is null or a.namespace = $1)
 order by namespace, instance_id, ref nulls first
 limit $2
