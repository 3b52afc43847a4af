-- Write the decisions of workflow tasks: the only ordinary writer of history.
-- $1-$13 one element per run: shard, namespace, instance id, run, owner, token, next token, base seq, gen,
--        number of records, next due, close status, keep (stay the owner)
-- $14-$21 records: item, seq, kind, version, ref, at, attrs, payload
-- $22-$33 new activities: item, ref, execution, name, queue, priority, start to close, schedule to start,
--        schedule to close, heartbeat, retry, payload
-- $34-$35 cancelled activities: item, ref    $36-$38 new timers: item, ref, due    $39-$40 timers gone: item, ref
-- Returns: per locked run its status (ok, refused, fenced), wake_gen and the clock under the lock; no row: closed.
-- Locks: all hot rows of the batch in key order, before anything else. Index: primary keys.
with item as materialized (
  select i.* from unnest($1::smallint[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], $7::uuid[],
       $8::integer[], $9::bigint[], $10::integer[], $11::timestamptz[], $12::text[], $13::boolean[]) with ordinality
       as i(shard, namespace, instance_id, run_id, owner, token, next_token, base, gen, n, due, close, keep, ord)
), locked as materialized (
  select i.ord, h.run_id, h.owner, h.token, h.next_seq, h.wake_gen
    from item i join aioflow.instance_hot h
      on (h.shard, h.namespace, h.instance_id) = (i.shard, i.namespace, i.instance_id)
   order by h.shard, h.namespace, h.instance_id
     for no key update of h
), judged as materialized (   -- the window makes every lock come before the first row
  select i.*, l.wake_gen, aioflow.clock() as clock, count(*) over () as locks,
         case when (l.run_id, l.owner, l.token, l.next_seq) is distinct from (i.run_id, i.owner, i.token, i.base)
              then 'fenced' when i.close is not null and l.wake_gen <> i.gen then 'refused' else 'ok' end as status
    from locked l join item i on i.ord = l.ord
), ok as materialized (
  select * from judged where status = 'ok'
), moved as (
  update aioflow.instance_hot h
     set ack_gen = o.gen, head = o.token, token = o.next_token, owner = case when o.keep then h.owner end,
         next_seq = o.base + o.n, attempt = 0, crashes = 0, isolation = 0, sealed = false, refused = 0,
         blocked_reason = null,
         visible_at = case when o.keep then 'infinity' when o.wake_gen <> o.gen then o.clock
                           else coalesce(o.due, 'infinity') end
    from ok o
   where (h.shard, h.namespace, h.instance_id) = (o.shard, o.namespace, o.instance_id) and o.close is null
), refusal as (
  update aioflow.instance_hot h set refused = h.refused + 1, sealed = h.refused >= 2
    from judged j
   where (h.shard, h.namespace, h.instance_id) = (j.shard, j.namespace, j.instance_id) and j.status = 'refused'
), gone as (
  delete from aioflow.instance_hot h using ok o
   where (h.shard, h.namespace, h.instance_id) = (o.shard, o.namespace, o.instance_id) and o.close is not null
), closed as (
  update aioflow.run r set status = o.close, closed_at = o.clock, last_seq = o.base + o.n - 1
    from ok o where r.shard = o.shard and r.run_id = o.run_id and o.close is not null
), written as (
  insert into aioflow.history (shard, run_id, seq, kind, version, ref, at, attrs, payload, commit)
  select o.shard, o.run_id, e.seq, e.kind, e.version, e.ref, e.at, e.attrs, e.payload, o.token
    from unnest($14::integer[], $15::integer[], $16::text[], $17::smallint[], $18::text[], $19::timestamptz[],
         $20::text[], $21::bytea[]) as e(item, seq, kind, version, ref, at, attrs, payload)
    join ok o on o.ord = e.item
), consumed as (
  delete from aioflow.inbox b using ok o
   where (b.shard, b.namespace, b.instance_id) = (o.shard, o.namespace, o.instance_id) and b.gen <= o.gen
), scheduled as (
  insert into aioflow.activity (shard, run_id, ref, namespace, instance_id, execution_id, activity, queue, priority,
         visible_at, scheduled_at, deadline, start_to_close, schedule_to_start, schedule_to_close,
         heartbeat_timeout, retry, payload)
  select o.shard, o.run_id, a.ref, o.namespace, o.instance_id, a.execution_id, a.name, a.queue, a.priority,
         o.clock, o.clock, o.clock + make_interval(secs => least(a.to_start, a.to_close)),
         a.start_to_close, a.to_start, a.to_close, a.heartbeat, a.retry, a.payload
    from unnest($22::integer[], $23::text[], $24::uuid[], $25::text[], $26::text[], $27::smallint[], $28::float8[],
         $29::float8[], $30::float8[], $31::float8[], $32::text[], $33::bytea[]) as a(item, ref, execution_id, name,
         queue, priority, start_to_close, to_start, to_close, heartbeat, retry, payload)
    join ok o on o.ord = a.item and o.close is null
), unwanted as materialized (   -- joined first: else an empty table's plan looks up by a part of the key only
  select o.shard, o.run_id, c.ref from unnest($34::integer[], $35::text[]) as c(item, ref)
    join ok o on o.ord = c.item and o.close is null
), dropped as (
  delete from aioflow.activity a using unwanted c where (a.shard, a.run_id, a.ref) = (c.shard, c.run_id, c.ref)
), set_timers as (
  insert into aioflow.timer (shard, run_id, ref, namespace, instance_id, due_at)
  select o.shard, o.run_id, t.ref, o.namespace, o.instance_id, t.due
    from unnest($36::integer[], $37::text[], $38::timestamptz[]) as t(item, ref, due)
    join ok o on o.ord = t.item and o.close is null
), timers_over as materialized (
  select o.shard, o.run_id, t.ref from unnest($39::integer[], $40::text[]) as t(item, ref)
    join ok o on o.ord = t.item and o.close is null
), gone_timers as (
  delete from aioflow.timer x using timers_over t where (x.shard, x.run_id, x.ref) = (t.shard, t.run_id, t.ref)
), left_activities as (
  delete from aioflow.activity a using ok o where a.shard = o.shard and a.run_id = o.run_id and o.close is not null
), left_timers as (
  delete from aioflow.timer t using ok o where t.shard = o.shard and t.run_id = o.run_id and o.close is not null
)
select j.ord, j.status, j.wake_gen, j.clock from judged j
