-- How runs ended: the terminal event, or nothing while open.
-- $1.. arrays: shard, namespace, instance id, run (null: the current or last one)
-- Returns: a row per item whose run (or reservation) exists. Locks: none. Index: primary keys.
-- The run is known before the table of runs is read: a choice made within that join would scan its whole shard.
with item as materialized (
  select i.shard, i.namespace, i.instance_id, coalesce(i.run_id, o.run_id) as run_id, o.found, i.ord
    from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[])
         with ordinality as i(shard, namespace, instance_id, run_id, ord)
    left join lateral (
      select true as found, case when h.instance_id is not null then h.run_id else x.run_id end as run_id
        from aioflow.instance x
        left join aioflow.instance_hot h
          on (h.shard, h.namespace, h.instance_id) = (x.shard, x.namespace, x.instance_id)
       where i.run_id is null and (x.shard, x.namespace, x.instance_id) = (i.shard, i.namespace, i.instance_id)
      offset 0) o on true
)
select i.ord, r.run_id, r.workflow, coalesce(r.status, 'reserved') as status, e.kind, e.version, e.ref, e.at, e.attrs,
       e.payload
  from item i
  left join aioflow.run r
    on (r.shard, r.run_id, r.namespace, r.instance_id) = (i.shard, i.run_id, i.namespace, i.instance_id)
  left join aioflow.history e on e.shard = r.shard and e.run_id = r.run_id and e.seq = r.last_seq
 where r.run_id is not null or i.found
 order by i.ord
