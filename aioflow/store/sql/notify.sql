-- Send hints, in a transaction of their own. $1 channels, $2 payloads. Locks: the server's, at commit.
-- Nobody waits for the disk: a hint is worth nothing after a crash, and nothing else is written here.
select pg_notify(i.channel, i.payload), set_config('synchronous_commit', 'off', true)
  from unnest($1::text[], $2::text[]) as i(channel, payload)
