-- A history is 1..n without a gap, and whoever writes next knows n. $1 limit. Reads: history, run, instance_hot.
with length as (
  select h.shard, h.run_id, count(*) as events, min(h.seq) as first, max(h.seq) as last
    from aioflow.history h group by h.shard, h.run_id
)
select coalesce(l.run_id, r.run_id)::text as subject,
       format('%s events from %s to %s, next_seq %s, last_seq %s, status %s',
              l.events, l.first, l.last, h.next_seq, r.last_seq, r.status) as detail
  from length l
  full join aioflow.run r on r.shard = l.shard and r.run_id = l.run_id
  left join aioflow.instance_hot h
    on (h.shard, h.namespace, h.instance_id) = (r.shard, r.namespace, r.instance_id) and h.run_id = r.run_id
 where r.run_id is null
    or l.first <> 1 or l.last <> l.events
    or r.status = 'running' and coalesce(l.last, 0) + 1 is distinct from h.next_seq
    or r.status <> 'running' and r.last_seq is distinct from l.last
 limit $1
