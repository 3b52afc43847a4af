-- The time of the database. Locks: none.
select aioflow.clock() as clock
