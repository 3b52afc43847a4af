-- A page of one history. $1 shard, $2 run, $3 after seq, $4 limit. Locks: none. Index: primary key.
select h.seq, h.commit, h.kind, h.version, h.ref, h.at, h.attrs, h.payload
  from aioflow.history h
 where h.shard = $1 and h.run_id = $2 and h.seq > $3
 order by h.seq
 limit $4
