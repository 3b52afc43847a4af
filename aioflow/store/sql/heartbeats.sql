-- Note signs of life of running attempts, or only ask whether they still run.
-- $1.. arrays: shard, run, ref, attempt token, details (null: keep), beat (false: only ask)
-- Returns: ord of the attempts that are still the holder's. A row that someone has locked is left as it is.
-- Locks: activity rows, skipping locked ones. Index: primary key.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::uuid[], $3::text[], $4::uuid[], $5::bytea[], $6::boolean[])
       with ordinality as i(shard, run_id, ref, token, details, beat, ord)
), mine as materialized (
  select i.ord, a.shard, a.run_id, a.ref
    from item i join aioflow.activity a on (a.shard, a.run_id, a.ref) = (i.shard, i.run_id, i.ref)
   where a.token = i.token and i.beat
   order by a.shard, a.run_id, a.ref
     for no key update of a skip locked
), beaten as (
  update aioflow.activity a
     set heartbeat_at = aioflow.clock(), heartbeat = coalesce(i.details, a.heartbeat),
         deadline = least(aioflow.clock() + make_interval(secs => a.heartbeat_timeout),
                          a.started_at + make_interval(secs => a.start_to_close),
                          a.scheduled_at + make_interval(secs => a.schedule_to_close))
    from mine m join item i on i.ord = m.ord
   where (a.shard, a.run_id, a.ref) = (m.shard, m.run_id, m.ref)
)
select i.ord
  from item i join aioflow.activity a on (a.shard, a.run_id, a.ref) = (i.shard, i.run_id, i.ref)
 where a.token = i.token
