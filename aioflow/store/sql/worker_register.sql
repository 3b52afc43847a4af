-- A worker process starts. $1 id, $2 identity, $3 namespace, $4 queues, $5 workflows, $6 activities, $7 slots,
-- $8 build, $9 lease in seconds. Sending it twice does no harm. Locks: its own row.
insert into aioflow.worker
       (worker_id, identity, namespace, queues, workflows, activities, slots, build, lease_until, started_at, seen_at)
select $1, $2, $3, $4, $5, $6, $7, $8, aioflow.clock() + make_interval(secs => $9), aioflow.clock(), aioflow.clock()
    on conflict (worker_id) do nothing
