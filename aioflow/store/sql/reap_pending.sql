-- Workers that are dead and may still own rows. Locks: none.
select w.worker_id from aioflow.worker w where w.dead and not w.released order by w.worker_id
