"""One object for all operations on the database, each batch-shaped and safe to call again."""

from __future__ import annotations

from aioflow.store.activities import Activities
from aioflow.store.instances import Instances
from aioflow.store.maintenance import Maintenance
from aioflow.store.pool import Database
from aioflow.store.reading import Reading
from aioflow.store.tasks import Tasks
from aioflow.store.workers import Workers


class Store:
    """All operations; what each does is told where it is defined (`Instances`, `Tasks`, `Activities`, …).

    All may raise `DatabaseUnavailable` (repeat with the same keys and tokens), `SchemaNotMigrated`, `StoreError`.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        instances, tasks, activities = Instances(db), Tasks(db), Activities(db)
        workers, reading, maintenance = Workers(db), Reading(db), Maintenance(db)
        self.start = instances.start
        self.reserve = instances.reserve
        self.signal = instances.signal
        self.request_cancel = instances.request_cancel
        self.terminate = instances.terminate
        self.release_quarantined = instances.release_quarantined

        self.claim_runs = tasks.claim_runs
        self.load = tasks.load
        self.load_history = tasks.load_history
        self.commit = tasks.commit
        self.release_runs = tasks.release_runs

        self.claim_activities = activities.claim_activities
        self.complete_activities = activities.complete_activities
        self.retry_activities = activities.retry_activities
        self.heartbeat = activities.heartbeat
        self.release_activities = activities.release_activities
        self.expired_activities = activities.expired_activities

        self.register_worker = workers.register_worker
        self.renew_lease = workers.renew_lease
        self.bump_epoch = workers.bump_epoch
        self.release_unknown = workers.release_unknown
        self.unregister_worker = workers.unregister_worker
        self.reap = workers.reap
        self.workers = workers.workers
        self.forget_workers = workers.forget_workers
        self.register_definitions = workers.register_definitions
        self.definitions = workers.definitions

        self.describe = reading.describe
        self.pending_activities = reading.pending_activities
        self.list_instances = reading.list_instances
        self.read_history = reading.read_history
        self.results = reading.results
        self.generations = reading.generations

        self.next_due = maintenance.next_due
        self.suspects = maintenance.suspects
        self.quarantined = maintenance.quarantined
        self.due_closes = maintenance.due_closes
        self.expire_requests = maintenance.expire_requests
        self.backlog = maintenance.backlog
        self.clock = maintenance.clock
        self.invariants = maintenance.invariants
