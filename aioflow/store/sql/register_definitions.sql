-- Workers say what workflows they know. Signals travel as JSON, since arrays of arrays must be rectangular.
-- $1.. arrays: namespace, workflow, signals (JSON array of text), queries (the same), open signals, queue
-- Locks: rows in key order. Index: primary key.
insert into aioflow.definition as d (namespace, workflow, signals, queries, open_signals, queue, seen_at)
select i.namespace, i.workflow, array(select jsonb_array_elements_text(i.signals::jsonb)),
       array(select jsonb_array_elements_text(i.queries::jsonb)), i.open, i.queue, aioflow.clock()
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::text[])
       as i(namespace, workflow, signals, queries, open, queue)
 order by i.namespace, i.workflow
    on conflict (namespace, workflow) do update
   set signals = excluded.signals, queries = excluded.queries, open_signals = excluded.open_signals,
       queue = excluded.queue, seen_at = excluded.seen_at
