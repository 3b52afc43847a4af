-- Serialise migrators until the transaction ends. $1 key. Locks: an advisory lock, used here only.
select pg_advisory_xact_lock($1)
