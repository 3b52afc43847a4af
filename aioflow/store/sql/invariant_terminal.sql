-- A closed run has one terminal event, its last, and its status agrees; an open one has none. $1 limit.
-- Reads: history, run.
with terminal as (
  select h.shard, h.run_id, count(*) as events, max(h.seq) as seq, max(h.kind) as kind,
         case max(h.kind) when 'RunCompleted' then 'completed' when 'RunFailed' then 'failed'
              when 'RunCancelled' then 'cancelled' when 'RunTerminated' then 'terminated'
              when 'RunTimedOut' then 'timed_out' when 'RunContinuedAsNew' then 'continued_as_new' end as status
    from aioflow.history h
   where h.kind in ('RunCompleted', 'RunFailed', 'RunCancelled', 'RunTerminated', 'RunTimedOut', 'RunContinuedAsNew')
   group by h.shard, h.run_id
)
select r.run_id::text as subject,
       format('status %s, last_seq %s, %s terminal events (%s at %s)',
              r.status, r.last_seq, coalesce(t.events, 0), t.kind, t.seq) as detail
  from aioflow.run r left join terminal t on t.shard = r.shard and t.run_id = r.run_id
 where r.status = 'running' and t.events > 0
    or r.status <> 'running'
       and (t.events, t.seq, t.status) is distinct from (1::bigint, r.last_seq, r.status)
    or (r.status = 'running') <> (r.closed_at is null)
 limit $1
