-- How long until something ordinary on these queues is due (no suspects, nothing in quarantine), in seconds (zero or less: now; null: nothing known).
-- $1 queues. Returns: runs, activities. Locks: none. Index: instance_hot_ready, activity_ready.
select extract(epoch from min(r.at) - aioflow.clock())::float8 as runs,
       extract(epoch from min(a.at) - aioflow.clock())::float8 as activities
  from unnest($1::text[]) as q(queue)
  left join lateral (
    select h.visible_at as at from aioflow.instance_hot h
     where h.queue = q.queue and h.isolation = 0 and h.visible_at < 'infinity' order by h.visible_at limit 1) r on true
  left join lateral (
    select x.visible_at as at from aioflow.activity x
     where x.queue = q.queue and x.isolation = 0 and x.owner is null order by x.visible_at limit 1) a on true
