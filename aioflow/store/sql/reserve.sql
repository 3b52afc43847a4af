-- Reserve instance ids: calls the client function, see migration 0003. $1.. arrays, one element per item.
-- Returns: ord, outcome, run_id, again. Locks: request key, then instance rows in key order.
select s.ord, s.outcome, s.run_id, s.again
  from aioflow.reserve($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::text[],
       $8::bytea[], $9::float8[]) s
