-- The schema that everything of aioflow lives in; made before the first migration.
create schema if not exists aioflow
