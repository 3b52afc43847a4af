-- Inputs wait only at open or reserved instances, above what was consumed and not above what was accepted. $1 limit.
-- Reads: inbox, instance_hot.
select format('%s/%s', b.namespace, b.instance_id) as subject,
       format('%s at gen %s, acknowledged %s, accepted %s', b.kind, b.gen, h.ack_gen, h.wake_gen) as detail
  from aioflow.inbox b
  left join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (b.shard, b.namespace, b.instance_id)
 where h.instance_id is null or b.gen > h.wake_gen or b.gen <= h.ack_gen
 limit $1
