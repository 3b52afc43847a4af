"""The key of an instance, and the shard it lives in."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from aioflow.errors import InvalidInstanceId

SHARDS = 64
MAX_ID = 255


class InstanceKey(NamedTuple):
    """Key of one instance: leads every table, sorts the locks."""

    shard: int
    namespace: str
    instance_id: str

    @classmethod
    def of(cls, namespace: str, instance_id: str) -> InstanceKey:
        """Key of an instance id; the SQL function ``aioflow.shard_of`` gives the same shard."""
        return cls(shard_of(namespace, instance_id), namespace, instance_id)


@lru_cache(maxsize=65_536)
def shard_of(namespace: str, instance_id: str) -> int:
    """First byte of ``sha256(utf8(namespace/instance_id))`` modulo 64."""
    return sha256(f"{namespace}/{instance_id}".encode()).digest()[0] % SHARDS


def check_id(instance_id: object) -> str:
    """Return a valid instance id, or raise `InvalidInstanceId` saying what is wrong."""
    if not isinstance(instance_id, str):
        raise InvalidInstanceId(f"an instance id is text, not {type(instance_id).__name__}")
    if not 1 <= len(instance_id) <= MAX_ID:
        raise InvalidInstanceId(f"an instance id has 1 to {MAX_ID} characters, this one {len(instance_id)}")
    if "\x00" in instance_id:
        raise InvalidInstanceId("an instance id cannot hold NUL")
    try:
        instance_id.encode()
    except UnicodeEncodeError:
        raise InvalidInstanceId("an instance id must be valid Unicode (it holds a lone surrogate)") from None
    return instance_id
