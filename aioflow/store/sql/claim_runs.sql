-- Take runs that are due, for one worker and of its namespace.
-- $1 worker, $2 its claim epoch, $3 queues in order of preference, $4 workflow names it knows, $5 limit, $6 token,
-- $7 suspects only (else none of them)
-- Returns: a row per claimed run; clock is read before any load, so due timers may be judged by it.
-- Locks: own worker row (key share, live and of this epoch) before any other; hot rows, skipping locked ones.
-- Index: instance_hot_ready.
with me as materialized (
  select w.namespace from aioflow.worker w
   where w.worker_id = $1 and not w.dead and w.claim_epoch = $2
     for key share
), ready as materialized (
  select h.shard, h.namespace, h.instance_id
    from unnest($3::text[]) as q(queue)
   cross join lateral (
     select x.shard, x.namespace, x.instance_id
       from aioflow.instance_hot x
      where x.queue = q.queue and x.isolation = $7::boolean::integer and x.visible_at <= aioflow.clock()
        and x.visible_at < 'infinity' and x.owner is null and not x.paused and x.workflow = any ($4::text[])
        and x.namespace = (select m.namespace from me m)
      order by x.visible_at
      limit $5
        for no key update skip locked) h
   limit $5
)
update aioflow.instance_hot h
   set owner = $1, token = $6, visible_at = 'infinity', attempt = h.attempt + 1
  from ready r
 where (h.shard, h.namespace, h.instance_id) = (r.shard, r.namespace, r.instance_id)
returning h.shard, h.namespace, h.instance_id, h.run_id, h.workflow, h.queue, h.build, h.token, h.next_seq, h.head,
          h.attempt, h.blocked_reason, aioflow.clock() as clock
