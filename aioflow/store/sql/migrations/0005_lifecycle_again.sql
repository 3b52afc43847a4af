-- Functions of 0003 anew: a run that was cancelled before it began has its grace, a reservation of a closed instance tells
-- its own workflow and time, and answers are true of some moment of their call. Signatures are the same.

-- Give an existing hot row a new run, in place: whoever waits for the row finds it open. Bumps wake_gen itself.
create or replace function aioflow.begin_run_in_place(
  p_shard smallint, p_namespace text, p_instance text, p_run uuid, p_workflow text, p_queue text, p_build text,
  p_priority smallint, p_version smallint, p_attrs text, p_payload bytea)
  returns void language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  v_gen bigint;
  v_number integer;
begin
  update aioflow.instance i
     set workflow = p_workflow, run_id = p_run, run_count = i.run_count + 1, started_at = aioflow.clock()
   where i.shard = p_shard and i.namespace = p_namespace and i.instance_id = p_instance
  returning i.run_count into v_number;
  insert into aioflow.run
         (shard, run_id, namespace, instance_id, number, workflow, queue, build, started_at, cancel_requested_at)
  select p_shard, p_run, p_namespace, p_instance, v_number, p_workflow, p_queue, p_build, aioflow.clock(),
         (select min(b.accepted_at) from aioflow.inbox b
           where b.shard = p_shard and b.namespace = p_namespace and b.instance_id = p_instance
             and b.kind = 'CancelRequested');
  -- A grace is for the clean-up of the code, so that of a run which was cancelled before it began begins with it. Read
  -- without a JSON parser, which refuses a reason with NUL; a quote that is not escaped cannot stand within a text.
  insert into aioflow.timer (shard, run_id, ref, namespace, instance_id, kind, due_at)
  select p_shard, p_run, '!cancel_grace', p_namespace, p_instance, 'cancel_grace',
         aioflow.clock() + make_interval(secs => g.seconds::double precision)
    from aioflow.inbox b
   cross join lateral substring(b.attrs from '[{,]\s*"grace"\s*:\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)') as g(seconds)
   where b.shard = p_shard and b.namespace = p_namespace and b.instance_id = p_instance
     and b.kind = 'CancelRequested' and g.seconds is not null
      on conflict do nothing;
  update aioflow.instance_hot h
     set run_id = p_run, workflow = p_workflow, queue = p_queue, build = p_build, priority = p_priority,
         visible_at = aioflow.clock(), wake_gen = h.wake_gen + 1, owner = null, token = null, next_seq = 1,
         head = null, sealed = false, refused = 0, attempt = 0, crashes = 0, isolation = 0, blocked_reason = null
   where h.shard = p_shard and h.namespace = p_namespace and h.instance_id = p_instance
  returning h.wake_gen into v_gen;
  insert into aioflow.inbox (shard, namespace, instance_id, gen, idx, kind, version, accepted_at, attrs, payload)
  values (p_shard, p_namespace, p_instance, v_gen, 0, 'RunStarted', p_version, aioflow.clock(), p_attrs, p_payload);
end $$;

-- Start runs. Policies: ``p_conflict`` for an open instance: fail, use_existing, terminate_existing;
-- ``p_reuse`` for a closed one: allow, allow_failed_only, reject. A reserved instance is simply started.
-- Outcomes: started, existing (use_existing), exists (refused: open), closed (refused: closed), conflict (of the
-- request key), unknown_namespace. ``again``: nothing was done now, this is what an earlier call did.
create or replace function aioflow.start(
  p_namespace text[], p_instance text[], p_run uuid[], p_workflow text[], p_queue text[], p_build text[],
  p_priority smallint[], p_version smallint[], p_attrs text[], p_payload bytea[], p_conflict text[], p_reuse text[],
  p_key text[], p_digest bytea[], p_keep double precision[])
  returns table (ord integer, outcome text, run_id uuid, again boolean)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  fresh constant integer[] :=
    aioflow.claim_keys('start', p_namespace, p_instance, p_key, p_digest, p_keep, p_run);
  new constant integer[] := aioflow.begin_instances(
    fresh, p_namespace, p_instance, p_run, p_workflow, p_queue, p_build, p_priority, p_version, p_attrs, p_payload);
  r record;
begin
  for r in
    select i.n::integer as ord, i.*, aioflow.shard_of(i.ns, i.id) as shard
      from unnest(p_namespace, p_instance, p_run, p_key, p_digest) with ordinality as i(ns, id, run_id, key, digest, n)
     order by shard, i.ns, i.id, i.n
  loop
    ord := r.ord; run_id := r.run_id; again := false;
    if r.ord = any (new) then
      outcome := 'started';
    elsif r.ord <> all (fresh) then
      select case when q.kind = 'start' and q.digest is not distinct from r.digest
                  then case q.outcome when 'accepted' then 'started' else q.outcome end else 'conflict' end, q.run_id, true
        into outcome, run_id, again
        from aioflow.request q
       where q.shard = r.shard and q.namespace = r.ns and q.instance_id = r.id and q.key = r.key;
      outcome := coalesce(outcome, 'conflict');  -- the key was named before in this call, and refused
    else
      select s.outcome, s.run_id, s.again into outcome, run_id, again from aioflow.start_existing(
        r.shard, r.ns, r.id, r.run_id, p_workflow[ord], p_queue[ord], p_build[ord],
        coalesce(p_priority[ord], 0::smallint), p_version[ord], p_attrs[ord], p_payload[ord],
        p_conflict[ord], p_reuse[ord]) s;
      if outcome not in ('started', 'existing') then
        perform aioflow.forget_keys(p_namespace, p_instance, p_key, array[ord]);
      elsif r.key is not null and run_id <> r.run_id then
        update aioflow.request q set outcome = 'existing', run_id = start.run_id
         where q.shard = r.shard and q.namespace = r.ns and q.instance_id = r.id and q.key = r.key;
      end if;
    end if;
    return next;
  end loop;
end $$;

-- Start an instance that exists, by its policies.
create or replace function aioflow.start_existing(
  p_shard smallint, p_namespace text, p_instance text, p_run uuid, p_workflow text, p_queue text, p_build text,
  p_priority smallint, p_version smallint, p_attrs text, p_payload bytea, p_conflict text, p_reuse text,
  out outcome text, out run_id uuid, out again boolean)
  language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  h aioflow.instance_hot;
  v_reuse text;
begin
  run_id := p_run; again := false;
  if not aioflow.lock_instance(p_shard, p_namespace, p_instance) then
    outcome := 'unknown_namespace'; run_id := null; return;
  end if;
  select * into h from aioflow.instance_hot x
   where x.shard = p_shard and x.namespace = p_namespace and x.instance_id = p_instance for no key update;
  if not found then
    v_reuse := aioflow.may_reuse(p_shard, p_namespace, p_instance, p_run, p_reuse);
    if v_reuse = 'mine' then
      outcome := 'started'; again := true; return;
    elsif v_reuse = 'closed' then
      outcome := 'closed';
      select i.run_id into run_id from aioflow.instance i
       where i.shard = p_shard and i.namespace = p_namespace and i.instance_id = p_instance;
      return;
    end if;
    insert into aioflow.instance_hot (shard, namespace, instance_id, run_id, workflow, queue, visible_at, wake_gen)
    values (p_shard, p_namespace, p_instance, p_run, p_workflow, p_queue, aioflow.clock(), 0);
  elsif exists (select from aioflow.run r where r.shard = p_shard and r.run_id = p_run) then
    outcome := 'started'; again := true; return;                 -- ours, and maybe another run followed
  elsif h.run_id is not null and p_conflict is distinct from 'terminate_existing' then
    outcome := case when p_conflict = 'use_existing' then 'existing' else 'exists' end;
    run_id := h.run_id; return;
  elsif h.run_id is not null then
    perform aioflow.end_run(p_shard, p_namespace, p_instance, h.run_id, h.next_seq, p_run, 'RunTerminated',
                            1::smallint, '{"origin":"terminate_existing"}', null, 'terminated');
    update aioflow.instance_hot x set ack_gen = x.wake_gen
     where x.shard = p_shard and x.namespace = p_namespace and x.instance_id = p_instance;
  end if;
  perform aioflow.begin_run_in_place(p_shard, p_namespace, p_instance, p_run, p_workflow, p_queue, p_build,
                                     p_priority, p_version, p_attrs, p_payload);
  outcome := 'started';
end $$;

-- Reserve ids: signals are taken from now on, the run starts later. Outcomes: reserved, exists, closed,
-- conflict, unknown_namespace; ``run_id`` of what is in the way (null: another reservation).
create or replace function aioflow.reserve(
  p_namespace text[], p_instance text[], p_workflow text[], p_queue text[], p_priority smallint[], p_reuse text[],
  p_key text[], p_digest bytea[], p_keep double precision[])
  returns table (ord integer, outcome text, run_id uuid, again boolean)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  n constant integer := cardinality(p_instance);
  fresh constant integer[] := aioflow.claim_keys('reserve', p_namespace, p_instance, p_key, p_digest, p_keep);
  new constant integer[] := aioflow.begin_instances(
    fresh, p_namespace, p_instance, array_fill(null::uuid, array[n]), p_workflow, p_queue,
    array_fill(null::text, array[n]), p_priority, array_fill(1::smallint, array[n]),
    array_fill(null::text, array[n]), array_fill(null::bytea, array[n]));
  v_shard smallint;
  v_reuse text;
begin
  for ord in select i from generate_series(1, n) i
              order by aioflow.shard_of(p_namespace[i], p_instance[i]), p_namespace[i], p_instance[i], i loop
    v_shard := aioflow.shard_of(p_namespace[ord], p_instance[ord]);
    run_id := null; again := ord <> all (fresh); outcome := 'reserved';
    if again then
      if 'duplicate' <> aioflow.explain(false, 'reserve', p_namespace[ord], p_instance[ord], p_key[ord], p_digest[ord])
      then outcome := 'conflict'; end if;
    elsif ord <> all (new) then
      if not aioflow.lock_instance(v_shard, p_namespace[ord], p_instance[ord]) then
        v_reuse := 'unknown_namespace';
      elsif exists (select from aioflow.instance_hot h where h.shard = v_shard and h.namespace = p_namespace[ord]
                                                         and h.instance_id = p_instance[ord]) then
        v_reuse := 'exists';
      else
        v_reuse := aioflow.may_reuse(v_shard, p_namespace[ord], p_instance[ord], null, p_reuse[ord]);
      end if;
      if v_reuse = 'ok' then
        update aioflow.instance i set workflow = p_workflow[ord], started_at = aioflow.clock()
         where i.shard = v_shard and i.namespace = p_namespace[ord] and i.instance_id = p_instance[ord];
        insert into aioflow.instance_hot
               (shard, namespace, instance_id, workflow, queue, priority, visible_at, wake_gen)
        values (v_shard, p_namespace[ord], p_instance[ord], p_workflow[ord], p_queue[ord],
                coalesce(p_priority[ord], 0::smallint), 'infinity', 0);
      else
        outcome := v_reuse;
        select case when h.instance_id is null then i.run_id else h.run_id end into run_id
          from aioflow.instance i left join aioflow.instance_hot h using (shard, namespace, instance_id)
         where i.shard = v_shard and i.namespace = p_namespace[ord] and i.instance_id = p_instance[ord];
        perform aioflow.forget_keys(p_namespace, p_instance, p_key, array[ord]);
      end if;
    end if;
    return next;
  end loop;
end $$;

-- Forced close: an open or reserved instance is closed without its code. ``p_run`` (or null: whatever is
-- current) guards against hitting a later run. ``p_commit``: a new id; it is also the run id that a reserved
-- instance closes under. The rows are locked and looked at again by statements of their own, the rest are later ones.
-- Outcomes: closed, already, duplicate, conflict, unknown, unknown_namespace.
create or replace function aioflow.terminate(
  p_namespace text[], p_instance text[], p_run uuid[], p_commit uuid[], p_kind text[], p_version smallint[],
  p_attrs text[], p_payload bytea[], p_status text[], p_key text[], p_digest bytea[], p_keep double precision[])
  returns table (ord integer, outcome text, run_id uuid)
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  fresh constant integer[] := aioflow.claim_keys('terminate', p_namespace, p_instance, p_key, p_digest, p_keep);
  v_shard smallint;
  h aioflow.instance_hot;
begin
  for ord in select i from generate_series(1, cardinality(p_instance)) i
              order by aioflow.shard_of(p_namespace[i], p_instance[i]), p_namespace[i], p_instance[i], i loop
    v_shard := aioflow.shard_of(p_namespace[ord], p_instance[ord]);
    run_id := null; h := null;
    if ord = any (fresh) and aioflow.lock_instance(v_shard, p_namespace[ord], p_instance[ord]) then
      select * into h from aioflow.instance_hot x
       where x.shard = v_shard and x.namespace = p_namespace[ord] and x.instance_id = p_instance[ord]
         for no key update;
    end if;
    if h.instance_id is null or h.run_id <> p_run[ord] or (h.run_id is null and p_run[ord] is not null) then
      outcome := aioflow.explain(ord = any (fresh), 'terminate', p_namespace[ord], p_instance[ord], p_key[ord], p_digest[ord]);
      select i.run_id into run_id from aioflow.instance i
       where i.shard = v_shard and i.namespace = p_namespace[ord] and i.instance_id = p_instance[ord];
      if p_run[ord] is not null and outcome in ('closed', 'unknown') then
        outcome := 'unknown';
        select r.run_id, 'closed' into run_id, outcome from aioflow.run r
         where r.shard = v_shard and r.run_id = p_run[ord];
        outcome := coalesce(outcome, 'unknown');
      end if;
      if outcome = 'closed' then outcome := 'already'; end if;
      if outcome = 'unknown' then run_id := null; end if;
      if ord = any (fresh) then perform aioflow.forget_keys(p_namespace, p_instance, p_key, array[ord]); end if;
    else
      if h.run_id is null then
        h.run_id := p_commit[ord];
        update aioflow.instance i set run_id = h.run_id, run_count = i.run_count + 1
         where i.shard = v_shard and i.namespace = h.namespace and i.instance_id = h.instance_id;
        insert into aioflow.run (shard, run_id, namespace, instance_id, number, workflow, queue, started_at)
        select v_shard, h.run_id, h.namespace, h.instance_id, i.run_count, h.workflow, h.queue, i.started_at
          from aioflow.instance i
         where i.shard = v_shard and i.namespace = h.namespace and i.instance_id = h.instance_id;
      end if;
      perform aioflow.end_run(v_shard, h.namespace, h.instance_id, h.run_id, h.next_seq, p_commit[ord],
                              p_kind[ord], p_version[ord], p_attrs[ord], p_payload[ord], p_status[ord]);
      delete from aioflow.instance_hot x
       where x.shard = v_shard and x.namespace = h.namespace and x.instance_id = h.instance_id;
      run_id := h.run_id; outcome := 'closed';
    end if;
    return next;
  end loop;
end $$;

revoke execute on all functions in schema aioflow from public;
