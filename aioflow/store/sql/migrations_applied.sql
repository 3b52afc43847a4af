-- Which migrations were applied. Locks: none.
select m.number, m.name, m.checksum, m.breaking, m.applied_at from aioflow.migration m order by m.number
