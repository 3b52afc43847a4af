-- Where a connection has ended: asked once when it is made, answered to any role.
-- Returns: standby or not, the timeline (null on a standby), whether the role may ask for the system identifier.
-- Locks: none.
select s.standby, case when not s.standby then substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end as timeline,
       has_function_privilege('pg_control_system()', 'execute') as may_ask
  from (select pg_is_in_recovery() as standby) s
