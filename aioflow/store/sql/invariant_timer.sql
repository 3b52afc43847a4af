-- A timer of an open run that was started and neither fired nor was cancelled has its row; no other has. $1 limit.
-- Reads: history, run, timer.
with noted as (
  select h.shard, h.run_id, h.ref,
         count(*) filter (where h.kind = 'TimerStarted') as started,
         count(*) filter (where h.kind = 'TimerFired') as fired,
         count(*) filter (where h.kind = 'TimerCancelled') as cancelled
    from aioflow.history h
   where h.kind in ('TimerStarted', 'TimerFired', 'TimerCancelled')
   group by h.shard, h.run_id, h.ref
)
select format('%s timer %s', coalesce(n.run_id, t.run_id), coalesce(n.ref, t.ref)) as subject,
       format('run %s: started %s times, fired %s, cancelled %s, row %s', coalesce(r.status, 'unknown'),
              coalesce(n.started, 0), coalesce(n.fired, 0), coalesce(n.cancelled, 0), t.ref is not null) as detail
  from noted n
  full join (select * from aioflow.timer x where x.kind = 'workflow') t using (shard, run_id, ref)
  left join aioflow.run r using (shard, run_id)
 where coalesce(n.started, 0) <> 1 or n.fired > 1 or n.fired + n.cancelled > 1
    or (t.ref is not null) <> (r.status = 'running' and n.fired + n.cancelled = 0)
 limit $1
