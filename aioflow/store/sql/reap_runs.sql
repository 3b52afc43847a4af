-- Release runs of dead workers. Always arms them, and lifts a seal. The claim stays counted as an attempt unless the worker said
-- good-bye; the death counts as a crash of those to blame. After two a run is a suspect, after $3 in all it is quarantined and says why.
-- $1 workers, $2 limit, $3 crashes that make a quarantine
-- Returns: a row per run released, with its crashes and isolation. Locks: hot rows in key order.
with mine as materialized (
  select h.shard, h.namespace, h.instance_id, h.crashes, h.isolation, (w.blame = 'none')::integer as goodbye,
         (w.blame = 'all' or w.blame = 'suspects' and h.isolation > 0)::integer as crash
    from aioflow.instance_hot h join aioflow.worker w on w.worker_id = h.owner
   where h.owner = any ($1::uuid[])
   order by h.shard, h.namespace, h.instance_id
   limit $2
     for no key update of h
), judged as (
  select m.*, least(m.crashes + m.crash, 10000) as total,
         case when m.crash = 0 then m.isolation when m.crashes + 1 >= $3 then 2 when m.crashes >= 1 then 1 else 0 end
           as verdict
    from mine m
)
update aioflow.instance_hot h
   set owner = null, token = null, visible_at = aioflow.clock(), sealed = false, refused = 0, crashes = j.total, isolation = j.verdict,
       attempt = greatest(0, h.attempt - j.goodbye),
       blocked_reason = case when j.verdict = 2 and j.crash = 1
                             then format('quarantined: %s workers in a row died while they ran it', j.total)
                             else h.blocked_reason end
  from judged j
 where (h.shard, h.namespace, h.instance_id) = (j.shard, j.namespace, j.instance_id)
returning h.queue, h.namespace, h.instance_id, h.run_id, h.workflow as name, h.crashes, h.isolation,
          j.crash = 1 as crashed
