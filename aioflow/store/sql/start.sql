-- Start runs: calls the client function, see migration 0003. $1.. arrays, one element per item.
-- Returns: ord, outcome, run_id, again. Locks: request key, then instance row, then hot row.
select s.ord, s.outcome, s.run_id, s.again
  from aioflow.start($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::smallint[],
       $8::smallint[], $9::text[], $10::bytea[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::float8[]) s
