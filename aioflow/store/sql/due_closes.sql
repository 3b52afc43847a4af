-- Runs that are to be closed by force: a grace or a run timeout is over.
-- $1 limit. Returns: a row each; the caller ends them by aioflow.terminate, guarded by the run. Locks: none.
-- Index: timer_due.
select t.shard, t.namespace, t.instance_id, t.run_id, t.kind, t.due_at
  from aioflow.timer t
 where t.kind <> 'workflow' and t.due_at <= aioflow.clock()
 order by t.due_at
 limit $1
