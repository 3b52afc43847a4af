-- Release runs that a worker owns and does not know (the answer of a claim was lost). After worker_epoch only. A seal is lifted.
-- $1 worker, $2 tokens it knows. Returns: queues. Locks: hot rows in key order.
with mine as materialized (
  select h.shard, h.namespace, h.instance_id
    from aioflow.instance_hot h
   where h.owner = $1 and h.token <> all ($2::uuid[])
   order by h.shard, h.namespace, h.instance_id
     for no key update
)
update aioflow.instance_hot h
   set owner = null, token = null, visible_at = aioflow.clock(), sealed = false, refused = 0,
       attempt = greatest(0, h.attempt - 1)
  from mine m
 where (h.shard, h.namespace, h.instance_id) = (m.shard, m.namespace, m.instance_id)
returning h.queue
