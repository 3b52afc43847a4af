-- How long until something ordinary that a worker could do is due (no suspects, nothing in quarantine), in seconds.
-- $1 queues, $2 workflow names, $3 activity names, $4 namespace. What others have to do is passed over, the first 1,000
-- of each queue: behind more of it nothing is found.
-- Returns: runs, activities (zero or less: now; null: nothing found). Locks: none.
-- Index: instance_hot_ready, activity_ready.
select extract(epoch from min(r.at) - aioflow.clock())::float8 as runs,
       extract(epoch from min(a.at) - aioflow.clock())::float8 as activities
  from unnest($1::text[]) as q(queue)
  left join lateral (
    select f.visible_at as at
      from (select h.visible_at, h.workflow, h.namespace, h.paused from aioflow.instance_hot h
             where h.queue = q.queue and h.isolation = 0 and h.visible_at < 'infinity'
             order by h.visible_at limit 1000) f
     where f.workflow = any ($2::text[]) and f.namespace = $4 and not f.paused
     order by f.visible_at limit 1) r on true
  left join lateral (
    select f.visible_at as at
      from (select x.visible_at, x.activity, x.namespace from aioflow.activity x
             where x.queue = q.queue and x.isolation = 0 and x.owner is null
             order by x.visible_at limit 1000) f
     where f.activity = any ($3::text[]) and f.namespace = $4
     order by f.visible_at limit 1) a on true
