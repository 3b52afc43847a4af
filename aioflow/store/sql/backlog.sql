-- Work that is due per queue (not in quarantine), and the live workers that serve it. Returns: queue, runs, activities, the age of the
-- oldest in seconds, workers. Locks: none. Index: instance_hot_ready, activity_ready.
with due as (
  select h.queue, 1 as runs, 0 as activities, h.visible_at
    from aioflow.instance_hot h where h.visible_at <= aioflow.clock() and h.visible_at < 'infinity' and h.isolation < 2
  union all
  select a.queue, 0, 1, a.visible_at
    from aioflow.activity a where a.owner is null and a.visible_at <= aioflow.clock() and a.isolation < 2
)
select d.queue, sum(d.runs) as runs, sum(d.activities) as activities,
       extract(epoch from aioflow.clock() - min(d.visible_at))::float8 as oldest,
       (select count(*) from aioflow.worker w
         where not w.dead and w.lease_until > aioflow.clock() and d.queue = any (w.queues)) as workers
  from due d
 group by d.queue
 order by d.queue
