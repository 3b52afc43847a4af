-- Decide whom the death of workers counts against, once for each: if one held suspects they ran alone, or as good as
-- alone, so it was them; else anything that it held may have been it. After reap_declare, in a statement of its own,
-- so that its snapshot has every claim; before the first release. $1 workers. Locks: worker rows.
update aioflow.worker w
   set blame = case when exists (select from aioflow.instance_hot h where h.owner = w.worker_id and h.isolation > 0)
                      or exists (select from aioflow.activity a where a.owner = w.worker_id and a.isolation > 0)
                    then 'suspects' else 'all' end
 where w.worker_id = any ($1::uuid[]) and w.dead and w.blame is null
returning w.worker_id
