-- Ask for cancellation: calls the client function, see migration 0002. $1.. arrays, one element per item.
-- Returns: ord, outcome, run_id, queue, ready. Locks: request keys, then hot rows in key order, one at a time.
select s.ord, s.outcome, s.run_id, s.queue, s.ready
  from aioflow.request_cancel($1::text[], $2::text[], $3::smallint[], $4::text[], $5::text[], $6::float8[], $7::text[],
       $8::bytea[], $9::float8[]) s
