-- Release activities of dead workers: the interrupted attempt is delivered again, its retry budget untouched; the
-- death counts as a crash of those to blame. After two an activity is a suspect, after $3 in all it is quarantined.
-- $1 workers, $2 limit, $3 crashes that make a quarantine
-- Returns: a row per activity released, with its crashes and isolation. Locks: activity rows, skipping locked ones.
with mine as materialized (
  select a.shard, a.run_id, a.ref, a.crashes, a.isolation, (w.blame = 'none')::integer as goodbye,
         (w.blame = 'all' or w.blame = 'suspects' and a.isolation > 0)::integer as crash
    from aioflow.activity a join aioflow.worker w on w.worker_id = a.owner
   where a.owner = any ($1::uuid[])
   order by a.shard, a.run_id, a.ref
   limit $2
     for no key update of a skip locked
), judged as (
  select m.*, least(m.crashes + m.crash, 10000) as total,
         case when m.crash = 0 then m.isolation when m.crashes + 1 >= $3 then 2 when m.crashes >= 1 then 1 else 0 end
           as verdict
    from mine m
)
update aioflow.activity a
   set owner = null, token = null, started_at = null, visible_at = aioflow.clock(), crashes = j.total,
       isolation = j.verdict, deliveries = greatest(0, a.deliveries - j.goodbye),
       deadline = least(aioflow.clock() + make_interval(secs => a.schedule_to_start),
                        a.scheduled_at + make_interval(secs => a.schedule_to_close))
  from judged j
 where (a.shard, a.run_id, a.ref) = (j.shard, j.run_id, j.ref)
returning a.queue, a.namespace, a.instance_id, a.run_id, a.activity as name, a.crashes, a.isolation,
          j.crash = 1 as crashed
