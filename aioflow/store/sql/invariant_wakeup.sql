-- Whatever has something to do is armed for it; what is reserved or owned is not. $1 limit.
-- Reads: instance_hot, timer, inbox.
select format('%s/%s', h.namespace, h.instance_id) as subject,
       format('visible at %s, accepted %s, acknowledged %s, owner %s, attempt %s, next timer %s', h.visible_at,
              h.wake_gen, h.ack_gen, h.owner, h.attempt, t.due_at) as detail
  from aioflow.instance_hot h
  left join lateral (
    select min(x.due_at) as due_at from aioflow.timer x
     where x.shard = h.shard and x.run_id = h.run_id and x.kind = 'workflow') t on true
 where h.ack_gen > h.wake_gen
    or (h.run_id is null or h.owner is not null) and h.visible_at <> 'infinity'
    or h.run_id is not null and h.owner is null and not h.paused and (
         h.visible_at = 'infinity' and (h.wake_gen <> h.ack_gen or t.due_at is not null or exists (
           select from aioflow.inbox b
            where (b.shard, b.namespace, b.instance_id) = (h.shard, h.namespace, h.instance_id)))
      or h.attempt = 0 and h.blocked_reason is null
         and h.visible_at > greatest(aioflow.clock(), case when h.wake_gen = h.ack_gen then coalesce(t.due_at, 'infinity') end))
 limit $1
