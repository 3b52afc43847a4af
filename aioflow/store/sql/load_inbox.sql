-- What a claimed run has to consume: its generation, inbox and due timers, in one snapshot.
-- $1.. arrays: shard, namespace, instance id, owner, token, clock (read before this statement: the claim's)
-- Returns: per item one row with part 0 (the hot row), then its inbox (part 1, in order), then its due timers
-- (part 2, by due time). No row: the run is no longer held. Results of an earlier run are left out.
-- Locks: none. Index: primary keys.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::timestamptz[])
       with ordinality as i(shard, namespace, instance_id, owner, token, clock, ord)
), held as materialized (
  select i.ord, i.clock, h.shard, h.namespace, h.instance_id, h.run_id, h.wake_gen, h.next_seq, h.head, h.sealed,
         h.refused, h.attempt
    from item i join aioflow.instance_hot h
      on (h.shard, h.namespace, h.instance_id) = (i.shard, i.namespace, i.instance_id)
   where h.owner = i.owner and h.token = i.token
)
select h.ord, 0 as part, h.wake_gen as gen, h.next_seq as idx, null::text as kind, null::smallint as version,
       null::text as ref, null::timestamptz as at, null::text as attrs, null::bytea as payload,
       h.head, h.sealed, h.refused, h.attempt, h.run_id
  from held h
union all
select h.ord, 1, b.gen, b.idx, b.kind, b.version, b.ref, b.accepted_at, b.attrs, b.payload,
       null, null, null, null, b.run_id
  from held h join aioflow.inbox b on (b.shard, b.namespace, b.instance_id) = (h.shard, h.namespace, h.instance_id)
 where b.gen <= h.wake_gen and (b.run_id is null or b.run_id = h.run_id)
union all
select h.ord, 2, 0, 0, 'TimerFired', 1::smallint, t.ref, t.due_at, null, null, null, null, null, null, t.run_id
  from held h join aioflow.timer t on t.shard = h.shard and t.run_id = h.run_id
 where t.kind = 'workflow' and t.due_at <= h.clock
 order by 1, 2, 3, 4, 8, 7
