-- Note an applied migration. $1 number, $2 name, $3 checksum, $4 breaking.
insert into aioflow.migration (number, name, checksum, breaking) values ($1, $2, $3, $4)
