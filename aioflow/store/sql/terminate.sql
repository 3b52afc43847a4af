-- Forced close: calls the client function, see migration 0003. $1.. arrays, one element per item.
-- Returns: ord, outcome, run_id. Locks: request keys, then in key order instance and hot row.
select s.ord, s.outcome, s.run_id
  from aioflow.terminate($1::text[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::smallint[], $7::text[],
       $8::bytea[], $9::text[], $10::text[], $11::bytea[], $12::float8[]) s
