-- Forget request keys past their time. $1 limit. Returns: a row each. Locks: the rows, skipping locked ones.
-- Index: request_expiry.
with old as materialized (
  select r.shard, r.namespace, r.instance_id, r.key
    from aioflow.request r
   where r.expires_at <= aioflow.clock()
   order by r.expires_at
   limit $1
     for update skip locked
)
delete from aioflow.request r using old o
 where (r.shard, r.namespace, r.instance_id, r.key) = (o.shard, o.namespace, o.instance_id, o.key)
returning r.key
