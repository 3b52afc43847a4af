-- Are suspects due that a worker could try? $1 queues, $2 workflow names, $3 activity names, $4 namespace
-- Returns: runs, activities. Locks: none. Index: instance_hot_ready, activity_ready.
select exists (
         select from unnest($1::text[]) as q(queue) join aioflow.instance_hot h on h.queue = q.queue
          where h.isolation = 1 and h.visible_at <= aioflow.clock() and h.visible_at < 'infinity'
            and h.owner is null and not h.paused and h.workflow = any ($2::text[]) and h.namespace = $4) as runs,
       exists (
         select from unnest($1::text[]) as q(queue) join aioflow.activity a on a.queue = q.queue
          where a.isolation = 1 and a.visible_at <= aioflow.clock()
            and a.owner is null and a.activity = any ($3::text[]) and a.namespace = $4) as activities
