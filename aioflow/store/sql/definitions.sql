-- What workers said of workflows. $1 namespace, $2 names (null: all). Locks: none. Index: primary key.
select d.namespace, d.workflow, d.signals, d.queries, d.open_signals, d.queue, d.seen_at
  from aioflow.definition d
 where d.namespace = $1 and ($2::text[] is null or d.workflow = any ($2))
 order by d.workflow
