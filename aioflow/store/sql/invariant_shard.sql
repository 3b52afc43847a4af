-- Every instance lives in the shard of its key. $1 limit. Reads: instance, instance_hot, run.
select format('%s/%s', x.namespace, x.instance_id) as subject, format('%s has it in shard %s', x.place, x.shard) as detail
  from (select 'instance' as place, i.shard, i.namespace, i.instance_id from aioflow.instance i
        union all
        select 'instance_hot', h.shard, h.namespace, h.instance_id from aioflow.instance_hot h
        union all
        select 'run', r.shard, r.namespace, r.instance_id from aioflow.run r) x
 where x.shard <> aioflow.shard_of(x.namespace, x.instance_id)
 limit $1
