-- What a doctor asks of a server, on a session without settings of ours: what holds for anybody who connects.
-- Returns: one row: version text and number, standby or not, what a crash can lose, connections in use and allowed.
-- Locks: none.
select current_setting('server_version') as version,
       current_setting('server_version_num')::integer as version_number,
       pg_is_in_recovery() as standby,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('max_connections')::integer as max_connections,
       (select count(*)::integer from pg_stat_activity a where a.backend_type = 'client backend') as connections
