-- How runs ended: the terminal event, or nothing while open.
-- $1.. arrays: shard, namespace, instance id, run (null: the current or last one)
-- Returns: a row per item whose run (or reservation) exists. Locks: none. Index: primary keys.
select i.ord, r.run_id, r.workflow, coalesce(r.status, 'reserved') as status, e.kind, e.version, e.ref, e.at, e.attrs,
       e.payload
  from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[])
       with ordinality as i(shard, namespace, instance_id, run_id, ord)
  join aioflow.instance x
    on (x.shard, x.namespace, x.instance_id) = (i.shard, i.namespace, i.instance_id)
  left join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (x.shard, x.namespace, x.instance_id)
  left join aioflow.run r
    on r.shard = x.shard and r.namespace = x.namespace and r.instance_id = x.instance_id
   and r.run_id = case when i.run_id is not null then i.run_id
                       when h.instance_id is not null then h.run_id else x.run_id end
  left join aioflow.history e on e.shard = r.shard and e.run_id = r.run_id and e.seq = r.last_seq
 where i.run_id is null or r.run_id is not null
 order by i.ord
