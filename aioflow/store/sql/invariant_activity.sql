-- An activity of an open run that was scheduled is waiting, running, in the inbox, in history, or cancelled: exactly
-- once recorded, never without having been scheduled. Rows exist for open runs only. $1 limit.
-- Reads: history, run, activity, inbox.
with scheduled as (
  select h.shard, h.run_id, h.ref, min(h.seq) as seq, count(*) as times
    from aioflow.history h where h.kind = 'ActivityScheduled' group by h.shard, h.run_id, h.ref
), ended as (
  select h.shard, h.run_id, h.ref, min(h.seq) as seq, count(*) as times
    from aioflow.history h
   where h.kind in ('ActivityCompleted', 'ActivityFailed', 'ActivityTimedOut', 'ActivityCancelled')
   group by h.shard, h.run_id, h.ref
), pending as (
  select b.shard, b.run_id, b.ref, count(*) as times
    from aioflow.inbox b where b.kind like 'Activity%' group by b.shard, b.run_id, b.ref
), dropped as (
  select distinct h.shard, h.run_id, h.ref from aioflow.history h where h.kind = 'ActivityCancelRequested'
)
select format('%s activity %s', coalesce(s.run_id, e.run_id, a.run_id), coalesce(s.ref, e.ref, a.ref)) as subject,
       format('run %s: scheduled %s times, row %s, in the inbox %s, recorded %s times', coalesce(r.status, 'unknown'),
              coalesce(s.times, 0), a.ref is not null, coalesce(p.times, 0), coalesce(e.times, 0)) as detail
  from scheduled s
  full join ended e using (shard, run_id, ref)
  full join aioflow.activity a using (shard, run_id, ref)
  left join pending p using (shard, run_id, ref)
  left join dropped d using (shard, run_id, ref)
  left join aioflow.run r using (shard, run_id)
 where s.ref is null or s.times > 1 or e.times > 1 or e.seq < s.seq
    or coalesce(e.times, 0) + coalesce(p.times, 0) + (a.ref is not null)::integer > 1
    or a.ref is not null and r.status is distinct from 'running'
    or r.status = 'running' and d.ref is null and e.ref is null and p.ref is null and a.ref is null
 limit $1
