-- Note that dead workers own nothing any more. $1 workers. Returns: those that are done. Locks: worker rows.
update aioflow.worker w set released = true
 where w.worker_id = any ($1::uuid[]) and w.dead
   and not exists (select from aioflow.instance_hot h where h.owner = w.worker_id)
   and not exists (select from aioflow.activity a where a.owner = w.worker_id)
returning w.worker_id
