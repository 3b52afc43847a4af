-- Release runs of dead workers. Always arms them. The claim stays counted as an attempt.
-- $1 workers, $2 limit. Returns: the queues of those released. Locks: hot rows in key order.
with mine as materialized (
  select h.shard, h.namespace, h.instance_id
    from aioflow.instance_hot h
   where h.owner = any ($1::uuid[])
   order by h.shard, h.namespace, h.instance_id
   limit $2
     for no key update
)
update aioflow.instance_hot h
   set owner = null, token = null, visible_at = aioflow.clock()
  from mine m
 where (h.shard, h.namespace, h.instance_id) = (m.shard, m.namespace, m.instance_id)
returning h.queue
