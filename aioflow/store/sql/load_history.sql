-- A page of the histories of several runs.
-- $1.. arrays: shard, run, after (seq already had), upto (last seq wanted), limit per run
-- Returns: events in order, per item. Locks: none. Index: primary key of history.
select i.ord, e.seq, e.kind, e.version, e.ref, e.at, e.attrs, e.payload
  from unnest($1::smallint[], $2::uuid[], $3::integer[], $4::integer[])
       with ordinality as i(shard, run_id, after, upto, ord)
 cross join lateral (
   select h.* from aioflow.history h
    where h.shard = i.shard and h.run_id = i.run_id and h.seq > i.after and h.seq <= i.upto
    order by h.seq limit $5) e
 order by i.ord, e.seq
