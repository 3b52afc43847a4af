-- The identifier of the database system: a primary and its standbys have the same one. Returns: it. Locks: none.
select c.system_identifier::text as system from pg_control_system() c
