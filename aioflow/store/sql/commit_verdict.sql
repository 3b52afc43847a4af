-- Did a commit take effect whose answer was lost, or that found its row changed? Asked only after it was re-sent.
-- $1.. arrays: shard, namespace, instance id, run, owner, token, next token, base seq, number of records
-- Returns: per item committed (head, or the history at its base, names its token), mine (the row still holds the
-- token it installed), ready (claimable), wake_gen (null when closed) and clock. A commit without records is known by head alone.
-- Locks: none. Index: primary keys.
select i.ord,
       coalesce(h.head = i.token, false) or coalesce(e.commit = i.token, false) as committed,
       coalesce(h.owner = i.owner and h.token = i.next_token, false) as mine,
       coalesce(h.owner is null and h.visible_at <= aioflow.clock(), false) as ready, h.wake_gen, aioflow.clock() as clock
  from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], $7::uuid[], $8::integer[])
       with ordinality as i(shard, namespace, instance_id, run_id, owner, token, next_token, base, ord)
  left join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (i.shard, i.namespace, i.instance_id) and h.run_id = i.run_id
  left join aioflow.history e on e.shard = i.shard and e.run_id = i.run_id and e.seq = i.base
 order by i.ord
