-- Was an outcome recorded by an earlier try whose answer was lost? Asked only after it was re-sent.
-- $1.. arrays: shard, namespace, instance id, run, ref, attempt token (as text)
-- Returns: ord of those found in inbox or history. Locks: none. Index: primary keys.
select i.ord
  from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::text[])
       with ordinality as i(shard, namespace, instance_id, run_id, ref, token, ord)
 where exists (
         select from aioflow.inbox b
          where (b.shard, b.namespace, b.instance_id) = (i.shard, i.namespace, i.instance_id)
            and b.run_id = i.run_id and b.ref = i.ref and strpos(b.attrs, i.token) > 0)
    or exists (
         select from aioflow.history h
          where h.shard = i.shard and h.run_id = i.run_id and h.ref = i.ref
            and h.kind in ('ActivityCompleted', 'ActivityFailed', 'ActivityTimedOut', 'ActivityCancelled')
            and strpos(h.attrs, i.token) > 0)
