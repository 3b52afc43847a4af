-- A run is open exactly when the hot row of its instance holds it, and the instance names it. $1 limit.
-- Reads: run, instance, instance_hot.
select format('%s/%s', coalesce(h.namespace, r.namespace), coalesce(h.instance_id, r.instance_id)) as subject,
       format('open run %s, hot row %s, current run %s', r.run_id, h.run_id, i.run_id) as detail
  from (select * from aioflow.run x where x.status = 'running') r
  full join (select * from aioflow.instance_hot x where x.run_id is not null) h
    on h.shard = r.shard and h.run_id = r.run_id
   and (h.namespace, h.instance_id) = (r.namespace, r.instance_id)
  left join aioflow.instance i
    on (i.shard, i.namespace, i.instance_id) = (coalesce(h.shard, r.shard), coalesce(h.namespace, r.namespace),
                                                coalesce(h.instance_id, r.instance_id))
 where r.run_id is null or h.run_id is null or i.run_id is distinct from h.run_id
 limit $1
