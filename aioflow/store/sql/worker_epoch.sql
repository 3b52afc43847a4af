-- Make every claim that was sent before void: after this, none of an older epoch can take rows.
-- $1 worker. Returns: the new epoch; no row: dead. Locks: its row for update, so claims in flight end first.
with mine as materialized (
  select w.worker_id from aioflow.worker w where w.worker_id = $1 and not w.dead for update
)
update aioflow.worker w set claim_epoch = w.claim_epoch + 1
  from mine m where w.worker_id = m.worker_id
returning w.claim_epoch
