-- Let instances out of quarantine. $1 namespaces, $2 instance ids. Returns: per item its outcome, run, queues to wake.
-- Locks: hot rows in key order, then their activities. Index: primary keys.
select ord, outcome, run_id, run_queue, activity_queues from aioflow.release_quarantined($1, $2)
