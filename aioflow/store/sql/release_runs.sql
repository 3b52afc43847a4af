-- Give runs back. Always arms them (now or after a back-off), whatever their generations are. A seal is lifted: while
-- nobody runs its code it is not about to close, and senders must get through.
-- $1.. arrays: shard, namespace, instance id, owner, token, delay in seconds, blocked reason, uncount (the claim
-- is not counted as an attempt), alive (its code ran to an end: not a suspect any more), harmful (it held up the
-- worker: counts like a death, so it is tried alone and at last quarantined). $11: how many make a quarantine
-- Returns: ord and queue of those released; the others were not held any more.
-- Locks: hot rows in key order. Index: primary key.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::float8[], $7::text[],
       $8::boolean[], $9::boolean[], $10::boolean[]) with ordinality
       as i(shard, namespace, instance_id, owner, token, delay, reason, uncount, alive, harmful, ord)
), locked as materialized (
  select i.ord, h.shard, h.namespace, h.instance_id, h.crashes + 1 as crashes
    from item i join aioflow.instance_hot h
      on (h.shard, h.namespace, h.instance_id) = (i.shard, i.namespace, i.instance_id)
   where h.owner = i.owner and h.token = i.token
   order by h.shard, h.namespace, h.instance_id
     for no key update of h
)
update aioflow.instance_hot h
   set owner = null, token = null, visible_at = aioflow.clock() + make_interval(secs => i.delay),
       sealed = false, refused = 0,
       attempt = greatest(0, h.attempt - case when i.uncount then 1 else 0 end),
       blocked_reason = case when i.harmful and l.crashes >= $11::integer
                             then format('quarantined after %s tries: %s', l.crashes, i.reason) else i.reason end,
       crashes = case when i.alive then 0 when i.harmful then least(l.crashes, 10000) else h.crashes end,
       isolation = case when i.alive then 0 when not i.harmful then h.isolation
                        when l.crashes >= $11::integer then 2 when l.crashes >= 2 then 1 else 0 end
  from locked l join item i on i.ord = l.ord
 where (h.shard, h.namespace, h.instance_id) = (l.shard, l.namespace, l.instance_id)
returning i.ord, h.queue
