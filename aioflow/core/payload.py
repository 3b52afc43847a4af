"""Payloads: values as self-describing bytes.

A *frame* is one tag byte and a body. Tag ``0x01`` is JSON in UTF-8 (with NaN and infinities as constants,
bytes as base64). Tags from ``0x80`` on are transforms, whose body holds another frame in the transform's own
form: compression, encryption, a reference to external storage. A chain of `Codec` applies and undoes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aioflow.core.shape import Shape, shape_of
from aioflow.errors import ConfigurationError, DecodeError, PayloadTooLarge

Payload = bytes

JSON = 0x01
FIRST_TRANSFORM = 0x80
MAX_PAYLOAD = 2 * 1024 * 1024
"""Default limit of one payload, in bytes."""

_JSON_TAG = bytes((JSON,))


def encode_value(value: Any, hint: Any = Any, *, what: str = "the value", limit: int = MAX_PAYLOAD) -> Payload:
    """A value as a payload, strictly of the type its hint names.

    Raises `EncodeError`, naming ``what`` and the place in it, when the value is of another type or would not
    come back as it is; `PayloadTooLarge` when it takes more than ``limit`` bytes. Under ``Any`` only plain
    JSON values are taken.
    """
    return frame(shape_of(hint).encode(value, what), what=what, limit=limit)


def decode_value(payload: Payload, hint: Any = Any, *, what: str = "the stored value") -> Any:
    """The value of a payload, read as the type its hint names; raises `DecodeError`."""
    return shape_of(hint).decode(unframe(payload, what), what)


def frame(text: bytes, *, what: str = "the value", limit: int = MAX_PAYLOAD) -> Payload:
    """A frame around JSON text; raises `PayloadTooLarge`."""
    if len(text) >= limit:
        raise PayloadTooLarge(
            f"{what} takes {len(text) + 1:,} bytes, the limit is {limit:,}; "
            "store it elsewhere and pass a reference, or raise the limit"
        )
    return _JSON_TAG + text


def unframe(payload: Payload, what: str = "the stored value") -> bytes:
    """The JSON text of a frame; raises `DecodeError` for a frame that is empty or of another kind."""
    if not payload:
        raise DecodeError(f"{what} is empty")
    if payload[0] != JSON:
        kind = "a codec that is not configured here" if payload[0] >= FIRST_TRANSFORM else "a newer aioflow"
        raise DecodeError(f"{what} was written with {kind} (tag 0x{payload[0]:02x})")
    return payload[1:]


class Codec(Protocol):
    """A transform of frames: compression, encryption, external storage.

    ``tag`` (0x80 to 0xff) is the first byte of what it writes, and finds it again when reading. ``context``
    holds what may be bound into the result, such as the namespace and the payload's own id.
    """

    tag: int

    def encode(self, frame: Payload, context: Mapping[str, str]) -> Payload:
        """A frame beginning with ``tag``, or the frame itself when the transform does not pay."""
        ...

    def decode(self, frame: Payload, context: Mapping[str, str]) -> Payload:
        """The frame that was given to `encode`; raises `DecodeError`."""
        ...


class CodecChain:
    """Codecs in the order they are applied; without any, frames pass unchanged."""

    def __init__(self, codecs: Sequence[Codec] = ()) -> None:
        self._codecs, self._by_tag = tuple(codecs), {codec.tag: codec for codec in codecs}
        if len(self._by_tag) != len(self._codecs):
            raise ConfigurationError("two codecs write the same tag")
        if any(not FIRST_TRANSFORM <= tag <= 0xFF for tag in self._by_tag):
            raise ConfigurationError("the tag of a codec lies between 0x80 and 0xff")

    def encode(self, frame: Payload, context: Mapping[str, str]) -> Payload:
        """The frame after every transform."""
        for codec in self._codecs:
            frame = codec.encode(frame, context)
        return frame

    def decode(self, frame: Payload, context: Mapping[str, str]) -> Payload:
        """The frame before every transform; raises `DecodeError` for a tag without a codec."""
        for _ in range(FIRST_TRANSFORM):  # a chain cannot be longer than there are tags
            if not frame or frame[0] < FIRST_TRANSFORM:
                return frame
            codec = self._by_tag.get(frame[0])
            if codec is None:
                raise DecodeError(f"no codec is configured here for a payload with tag 0x{frame[0]:02x}")
            frame = codec.decode(frame, context)
        raise DecodeError("the payload is wrapped in itself")


__all__ = [
    "FIRST_TRANSFORM",
    "JSON",
    "MAX_PAYLOAD",
    "Codec",
    "CodecChain",
    "Payload",
    "Shape",
    "decode_value",
    "encode_value",
    "frame",
    "shape_of",
    "unframe",
]
