-- Whoever owns something may still come back or be reaped: known, and not dead and done with. $1 limit.
-- Reads: instance_hot, activity, worker.
select o.subject, format('owner %s, token %s', o.owner, o.token) as detail
  from (select format('%s/%s', h.namespace, h.instance_id) as subject, h.owner, h.token from aioflow.instance_hot h
        union all
        select format('%s/%s activity %s', a.namespace, a.instance_id, a.ref), a.owner, a.token
          from aioflow.activity a) o
  left join aioflow.worker w on w.worker_id = o.owner
 where o.owner is not null and (w.worker_id is null or w.released or o.token is null)
 limit $1
