-- A process says that it is gone. Its rows are released by later statements, and nobody is blamed: not either when it
-- was declared dead just before (its lease ran out), unless that death was counted already.
-- $1 worker. Locks: its row for update, so claims in flight end first.
with mine as materialized (
  select w.worker_id from aioflow.worker w where w.worker_id = $1 and (not w.dead or w.blame is null) for update
)
update aioflow.worker w set dead = true, blame = 'none', seen_at = aioflow.clock()
  from mine m where w.worker_id = m.worker_id
returning w.worker_id
