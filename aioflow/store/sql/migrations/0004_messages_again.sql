-- Functions of 0002 anew: what callers are told when something happens between the statements of their call, keys that
-- expire meanwhile or stand twice in one call, a bound on the signals that wait, the grace of a cancel that comes before
-- its run. Signatures are the same, so processes of the former version go on with them.

-- Remember request keys. Returns the items that may go on: those without a key or with a new one. The row of a key
-- that was there is locked, so that it does not expire before its caller is answered.
create or replace function aioflow.claim_keys(
  p_kind text, p_namespace text[], p_instance text[], p_key text[], p_digest bytea[], p_keep double precision[],
  p_run uuid[] default null)
  returns integer[] language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare fresh integer[];
begin
  with item as (
    select distinct on (shard, ns, id, key) *
      from (select aioflow.shard_of(i.ns, i.id) as shard, i.*, p_run[i.ord] as run_id
              from unnest(p_namespace, p_instance, p_key, p_digest, p_keep)
                   with ordinality as i(ns, id, key, digest, keep, ord)
             where i.key is not null) x
     order by shard, ns, id, key, ord
  ), added as (
    insert into aioflow.request as r
           (shard, namespace, instance_id, key, kind, digest, run_id, outcome, expires_at)
    select shard, ns, id, key, p_kind, digest, run_id, 'accepted', aioflow.clock() + make_interval(secs => keep)
      from item order by shard, ns, id, key
        on conflict (shard, namespace, instance_id, key) do update set outcome = r.outcome where false
    returning r.shard, r.namespace, r.instance_id, r.key
  )
  select coalesce(array_agg(i.ord::integer), '{}') into fresh
    from item i join added a on (a.shard, a.namespace, a.instance_id, a.key) = (i.shard, i.ns, i.id, i.key);
  return array(select i.ord::integer from unnest(p_key) with ordinality as i(key, ord)
                where i.key is null or i.ord = any (fresh));
end $$;

-- What became of an item that was not delivered (and not refused as closing). A key that is gone was named before in the
-- same call, and refused: its caller may come back.
create or replace function aioflow.explain(
  p_fresh boolean, p_kind text, p_namespace text, p_instance text, p_key text, p_digest bytea)
  returns text language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
declare
  v_shard constant smallint := aioflow.shard_of(p_namespace, p_instance);
  v_same boolean;
  v_outcome text;
begin
  if not p_fresh then
    select r.kind = p_kind and r.digest is not distinct from p_digest into v_same
      from aioflow.request r
     where r.shard = v_shard and r.namespace = p_namespace and r.instance_id = p_instance and r.key = p_key;
    return case when v_same then 'duplicate' when not found and p_kind in ('signal', 'cancel') then 'closing'
                else 'conflict' end;
  end if;
  -- There was no hot row, and by now there may be one. If it is of the first run (or reservation), the instance was not
  -- closed: it did not exist yet.
  select case when i.run_count = (h.run_id is not null)::integer then 'unknown' else 'closed' end into v_outcome
    from aioflow.instance i left join aioflow.instance_hot h using (shard, namespace, instance_id)
   where i.shard = v_shard and i.namespace = p_namespace and i.instance_id = p_instance;
  if found then return v_outcome; end if;
  return case when exists (select from aioflow.namespace n where n.name = p_namespace)
              then 'unknown' else 'unknown_namespace' end;
end $$;

-- How many signals may wait for one instance.
create or replace function aioflow.most_signals() returns integer language sql immutable parallel safe
  return 10000;

-- Bump and insert: the one statement in which every delivery ends. Locks the hot rows in key order, bumps
-- them unconditionally and inserts at the generation its own bump returned. Returns a row per item that has a
-- hot row: ``ready`` when the run is claimable by it, so that its queue may be woken. Signals are refused when about
-- ``most_signals`` wait already; they are only counted when there may be, at 256 for each delivery.
create or replace function aioflow.deliver(
  p_take integer[], p_namespace text[], p_instance text[], p_kind text, p_version smallint[], p_ref text[],
  p_attrs text[], p_payload bytea[])
  returns table (ord integer, outcome text, run_id uuid, queue text, ready boolean)
  language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  with item as materialized (
    select i.*, aioflow.shard_of(i.ns, i.id) as shard
      from unnest(p_namespace, p_instance, p_version, p_ref, p_attrs, p_payload)
           with ordinality as i(ns, id, version, ref, attrs, payload, ord)
     where i.ord = any (p_take)
  ), hot as materialized (
    select h.shard, h.namespace, h.instance_id, h.run_id, h.queue, h.sealed, h.owner, h.wake_gen - h.ack_gen as behind
      from aioflow.instance_hot h
      join (select distinct i.shard, i.ns, i.id from item i) t
        on (h.shard, h.namespace, h.instance_id) = (t.shard, t.ns, t.id)
     order by h.shard, h.namespace, h.instance_id
       for no key update of h
  ), locked as materialized (
    select h.*, case when h.sealed then 'closing'
                     when p_kind = 'SignalReceived' and h.behind * 256 >= aioflow.most_signals() and exists (
                       select from aioflow.inbox b
                        where (b.shard, b.namespace, b.instance_id) = (h.shard, h.namespace, h.instance_id)
                          and b.kind = p_kind offset aioflow.most_signals() - 1) then 'full'
                     else 'accepted' end as outcome
      from hot h
  ), bumped as (
    update aioflow.instance_hot h
       set wake_gen = h.wake_gen + 1,
           visible_at = case when h.owner is null and h.run_id is not null
                             then least(h.visible_at, aioflow.clock()) else h.visible_at end
      from locked l
     where (h.shard, h.namespace, h.instance_id) = (l.shard, l.namespace, l.instance_id) and l.outcome = 'accepted'
    returning h.shard, h.namespace, h.instance_id, h.wake_gen
  ), stored as (
    insert into aioflow.inbox
           (shard, namespace, instance_id, gen, idx, kind, version, ref, accepted_at, attrs, payload)
    select b.shard, b.namespace, b.instance_id, b.wake_gen, i.ord, p_kind, i.version, i.ref,
           aioflow.clock(), i.attrs, i.payload
      from bumped b join item i on (b.shard, b.namespace, b.instance_id) = (i.shard, i.ns, i.id)
  )
  select i.ord::integer, l.outcome, l.run_id, l.queue,
         l.owner is null and l.run_id is not null and l.outcome = 'accepted'
    from item i join locked l on (l.shard, l.namespace, l.instance_id) = (i.shard, i.ns, i.id);
end $$;

-- Send signals. ``p_ref`` is the signal's id, ``p_attrs`` a JSON object with its name, ``p_payload`` its
-- arguments; ``p_keep``: seconds a key is remembered, null as long as the instance is kept.
create or replace function aioflow.signal(
  p_namespace text[], p_instance text[], p_version smallint[], p_ref text[], p_attrs text[], p_payload bytea[],
  p_key text[], p_digest bytea[], p_keep double precision[])
  returns table (ord integer, outcome text, run_id uuid, queue text, ready boolean)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  fresh constant integer[] :=
    aioflow.claim_keys('signal', p_namespace, p_instance, p_key, p_digest, p_keep);
  done integer[] := '{}';
  failed integer[] := '{}';
begin
  for ord, outcome, run_id, queue, ready in
      select d.* from aioflow.deliver(fresh, p_namespace, p_instance, 'SignalReceived',
                                      p_version, p_ref, p_attrs, p_payload) d loop
    done := done || ord;
    if outcome <> 'accepted' then failed := failed || ord; end if;
    return next;
  end loop;
  failed := failed || array(select f from unnest(fresh) f where f <> all (done));
  if cardinality(failed) > 0 then
    perform aioflow.forget_keys(p_namespace, p_instance, p_key, failed);
  end if;
  for ord in select i from generate_series(1, cardinality(p_instance)) i where i <> all (done) loop
    outcome := aioflow.explain(ord = any (fresh), 'signal', p_namespace[ord], p_instance[ord], p_key[ord], p_digest[ord]);
    run_id := null; queue := null; ready := false;
    return next;
  end loop;
end $$;

-- Ask for cancellation. A run is asked once: a second request answers as the first did. ``p_grace``: seconds
-- after which the run is terminated by force, null never. A reserved instance keeps the request for its start, with
-- which the grace begins.
create or replace function aioflow.request_cancel(
  p_namespace text[], p_instance text[], p_version smallint[], p_ref text[], p_attrs text[],
  p_grace double precision[], p_key text[], p_digest bytea[], p_keep double precision[])
  returns table (ord integer, outcome text, run_id uuid, queue text, ready boolean)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  fresh constant integer[] := aioflow.claim_keys('cancel', p_namespace, p_instance, p_key, p_digest, p_keep);
  done integer[] := '{}';
  failed integer[] := '{}';
  h record;
begin
  -- One by one in key order, each locked once: a second look at all could find rows that came up before locked ones.
  for ord in select i from generate_series(1, cardinality(p_instance)) i where i = any (fresh)
              order by aioflow.shard_of(p_namespace[i], p_instance[i]), p_namespace[i], p_instance[i], i loop
    select * into h from aioflow.instance_hot x
     where x.shard = aioflow.shard_of(p_namespace[ord], p_instance[ord]) and x.namespace = p_namespace[ord]
       and x.instance_id = p_instance[ord] for no key update;
    continue when not found;
    done := done || ord;
    run_id := h.run_id; queue := h.queue; ready := false;
    if h.sealed then
      outcome := 'closing'; failed := failed || ord;
      return next; continue;
    end if;
    update aioflow.run r set cancel_requested_at = aioflow.clock()
     where r.shard = h.shard and r.run_id = h.run_id and r.cancel_requested_at is null;
    if not found and (h.run_id is not null or exists (
         select from aioflow.inbox b where (b.shard, b.namespace, b.instance_id)
              = (h.shard, h.namespace, h.instance_id) and b.kind = 'CancelRequested')) then
      outcome := 'duplicate';
      return next; continue;
    end if;
    if h.run_id is null and p_grace[ord] is not null then
      -- Into the text: a JSON parser would refuse a reason with NUL.
      p_attrs[ord] := coalesce(p_attrs[ord], '{}');
      if p_attrs[ord] !~ '[{,]\s*"grace"\s*:' then
        p_attrs[ord] := regexp_replace(p_attrs[ord], '\s*\}\s*$', '') ||
                        case when p_attrs[ord] ~ '^\s*\{\s*\}\s*$' then '' else ',' end ||
                        '"grace":' || p_grace[ord] || '}';
      end if;
    elsif p_grace[ord] is not null then
      insert into aioflow.timer (shard, run_id, ref, namespace, instance_id, kind, due_at)
      values (h.shard, h.run_id, '!cancel_grace', h.namespace, h.instance_id, 'cancel_grace',
              aioflow.clock() + make_interval(secs => p_grace[ord]))
          on conflict do nothing;
    end if;
    select d.outcome, d.ready into outcome, ready
      from aioflow.deliver(array[ord], p_namespace, p_instance, 'CancelRequested', p_version, p_ref, p_attrs,
                           array_fill(null::bytea, array[cardinality(p_instance)])) d;
    return next;
  end loop;
  failed := failed || array(select f from unnest(fresh) f where f <> all (done));
  if cardinality(failed) > 0 then
    perform aioflow.forget_keys(p_namespace, p_instance, p_key, failed);
  end if;
  for ord in select i from generate_series(1, cardinality(p_instance)) i where i <> all (done) loop
    outcome := aioflow.explain(ord = any (fresh), 'cancel', p_namespace[ord], p_instance[ord], p_key[ord], p_digest[ord]);
    run_id := null; queue := null; ready := false;
    return next;
  end loop;
end $$;

revoke execute on all functions in schema aioflow from public;
