-- Send hints, in a transaction of their own. $1 channels, $2 payloads. Locks: the server's, at commit.
select pg_notify(i.channel, i.payload) from unnest($1::text[], $2::text[]) as i(channel, payload)
