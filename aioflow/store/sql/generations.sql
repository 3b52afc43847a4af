-- How far open instances are. $1.. arrays: shard, namespace, instance id. Returns: a row per open or reserved
-- instance: what was accepted (wake_gen) and consumed (ack_gen). Locks: none. Index: primary key.
select i.ord, h.wake_gen, h.ack_gen, h.run_id, h.next_seq
  from unnest($1::smallint[], $2::text[], $3::text[]) with ordinality as i(shard, namespace, instance_id, ord)
  join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (i.shard, i.namespace, i.instance_id)
