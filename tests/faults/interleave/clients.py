"""Operations of callers and of maintenance, over the same few instances in any order."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aioflow.core import events as ev
from aioflow.store import rows
from tests.faults.interleave.ledger import Hand
from tests.faults.interleave.scene import NAMES
from tests.store.bench import NOW, ids, key, record, signalled, started


def _base(hand: Hand, instance_id: str, **more: Any) -> dict[str, Any]:
    """Mostly several in one call, as with generated ids; sometimes each alone."""
    return {"namespace": "default", "instance_id": instance_id, "key": ids().hex, **more}


def _alone(hand: Hand) -> bool:
    return hand.rng.random() < 0.25


async def _start(hand: Hand, letters: str, **policy: Any) -> None:
    alone = _alone(hand)
    requests = [
        rows.StartRequest(
            **_base(hand, one, alone=alone), run_id=ids(), workflow="W", queue="q", record=started(), **policy
        )
        for one in hand.some(letters)
    ]
    hand.ledger.starts.update({one.run_id: None for one in requests})
    for request, outcome in zip(requests, await hand.store.start(requests), strict=True):
        hand.ledger.starts[request.run_id] = outcome.outcome


async def start(hand: Hand) -> None:
    await _start(hand, "mnuzp", conflict=hand.rng.choice(("fail", "use_existing")), reuse="allow")


async def restart(hand: Hand) -> None:
    await _start(hand, "pqrstumz", conflict="terminate_existing", reuse="allow")


async def reserve(hand: Hand) -> None:
    alone = _alone(hand)
    await hand.store.reserve(
        [
            rows.ReserveRequest(**_base(hand, one, alone=alone), workflow="W", queue="q")
            for one in hand.some("mnuzt")
        ]
    )  # fmt: skip


async def signal(hand: Hand) -> None:
    alone = _alone(hand)
    requests = {
        (ref := ids().hex): rows.SignalRequest(**_base(hand, one, alone=alone), record=signalled(ref=ref))
        for one in hand.some("pqrstuymz")
    }
    hand.ledger.signals.update(dict.fromkeys(requests))
    for ref, outcome in zip(requests, await hand.store.signal(list(requests.values())), strict=True):
        hand.ledger.signals[ref] = outcome.outcome


async def cancel(hand: Hand) -> None:
    alone, grace = _alone(hand), hand.rng.choice((None, 0.001, 60.0))
    requests = {
        (ref := ids().hex): rows.CancelRequest(
            **_base(hand, one, alone=alone), grace=grace, record=record(ev.CancelRequested(at=NOW, ref=ref))
        )
        for one in hand.some("pqrstuy")
    }
    hand.ledger.cancels.update(dict.fromkeys(requests))
    for ref, outcome in zip(requests, await hand.store.request_cancel(list(requests.values())), strict=True):
        hand.ledger.cancels[ref] = outcome.outcome


async def _terminate(hand: Hand, targets: list[tuple[str, UUID | None]]) -> None:
    alone = _alone(hand)
    requests = [
        rows.TerminateRequest(
            **_base(hand, one, alone=alone), run_id=run, commit=ids(), record=record(ev.RunTerminated(at=NOW))
        )
        for one, run in targets
    ]
    hand.ledger.closes.update({one.commit: None for one in requests})
    for request, outcome in zip(requests, await hand.store.terminate(requests), strict=True):
        hand.ledger.closes[request.commit] = outcome


async def terminate(hand: Hand) -> None:
    await _terminate(hand, [(one, None) for one in hand.some("pqrstuyz")])


async def due_closes(hand: Hand) -> None:
    """The sweep over graces that are over."""
    if due := await hand.store.due_closes(10):
        hand.rng.shuffle(due)
        await _terminate(hand, [(one.key.instance_id, one.run_id) for one in due])


async def expire_requests(hand: Hand) -> None:
    await hand.store.expire_requests(10)


async def release_quarantined(hand: Hand) -> None:
    await hand.store.release_quarantined([key(NAMES[one]) for one in hand.letters("pqrsty")])


async def forget_workers(hand: Hand) -> None:
    await hand.store.forget_workers(0.0)


CLIENTS = (start, restart, reserve, signal, cancel, terminate, due_closes, expire_requests, release_quarantined,
           forget_workers)  # fmt: skip
