-- Outcomes of activities: each goes to the inbox of its run, once; whoever comes late changes nothing.
-- $1.. arrays: shard, namespace, instance id, run, ref, attempt token (null: a waiting one), deadline that must
-- still stand (null: any), kind, version, attrs (they carry the attempt token), payload
-- Returns: the items that were recorded, with the queue to wake (null: its holder will see it).
-- Locks: hot rows in key order, all of them before any activity row. Index: primary keys.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::uuid[],
       $7::timestamptz[], $8::text[], $9::smallint[], $10::text[], $11::bytea[]) with ordinality
       as i(shard, namespace, instance_id, run_id, ref, token, deadline, kind, version, attrs, payload, ord)
), locked as materialized (
  select h.shard, h.namespace, h.instance_id
    from aioflow.instance_hot h
    join (select distinct i.shard, i.namespace, i.instance_id from item i) t
      on (h.shard, h.namespace, h.instance_id) = (t.shard, t.namespace, t.instance_id)
   order by h.shard, h.namespace, h.instance_id
     for no key update of h
), held as materialized (     -- the window makes every lock come before the first row
  select i.*, count(*) over () as locks
    from locked l join item i on (i.shard, i.namespace, i.instance_id) = (l.shard, l.namespace, l.instance_id)
), ended as (
  delete from aioflow.activity a using held i
   where (a.shard, a.run_id, a.ref) = (i.shard, i.run_id, i.ref)
     and a.token is not distinct from i.token and (i.deadline is null or a.deadline = i.deadline)
  returning i.ord, i.shard, i.namespace, i.instance_id, i.run_id, i.ref, i.kind, i.version, i.attrs, i.payload
), bumped as (
  update aioflow.instance_hot h
     set wake_gen = h.wake_gen + 1,
         visible_at = case when h.owner is null then least(h.visible_at, aioflow.clock()) else h.visible_at end
    from (select distinct e.shard, e.namespace, e.instance_id from ended e) e
   where (h.shard, h.namespace, h.instance_id) = (e.shard, e.namespace, e.instance_id)
  returning h.shard, h.namespace, h.instance_id, h.wake_gen, h.queue, h.owner
), stored as (
  insert into aioflow.inbox
         (shard, namespace, instance_id, gen, idx, kind, version, ref, run_id, accepted_at, attrs, payload)
  select b.shard, b.namespace, b.instance_id, b.wake_gen, e.ord, e.kind, e.version, e.ref, e.run_id,
         aioflow.clock(), e.attrs, e.payload
    from bumped b join ended e on (e.shard, e.namespace, e.instance_id) = (b.shard, b.namespace, b.instance_id)
)
select e.ord, case when b.owner is null then b.queue end as queue
  from ended e join bumped b on (b.shard, b.namespace, b.instance_id) = (e.shard, e.namespace, e.instance_id)
