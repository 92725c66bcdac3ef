"""Headers as templates: constant bytes, with fields that are filled in for each chunk.

Spec: specs/attributes/anychunk.header. A template is declared in the attributes of an array, so
that every writer can make the header; the codec itself, `pad` or `offset`, does not change.
"""

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from anychunk.errors import ChunkEncodeError, CodecConfigError
from anychunk.model.grid import Shape
from anychunk.model.index import Json

KEY = "anychunk.header"
"""The attribute."""
CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
MARKS = {"little": "<", "big": ">"}
VALUES = ("nbytes", "shape", "coordinate")
MAX_FIELDS = 1000


@dataclass(frozen=True, kw_only=True)
class Field:
    """A number in a header that is written for each chunk: `value * times + plus`."""

    value: Literal["nbytes", "shape", "coordinate"]
    """The payload's length in bytes, the chunk's shape, or its place in the grid of chunks."""
    at: int
    """Where it begins in the header."""
    type: Literal["uint8", "uint16", "uint32", "uint64"] = "uint32"
    """How it is stored."""
    endian: Literal["little", "big"] = "little"
    """Byte order."""
    axis: int | None = None
    """Axis of `shape` and `coordinate`."""
    times: int = 1
    """Factor."""
    plus: int = 0
    """Added after multiplying."""

    def __post_init__(self) -> None:
        for key, known in (("value", VALUES), ("type", CODES), ("endian", MARKS)):
            if not isinstance(getattr(self, key), str) or getattr(self, key) not in known:
                raise CodecConfigError(
                    f"header: {key} of a field is {getattr(self, key)!r}, expected one of "
                    f"{' '.join(known)}"
                )
        for key, least in (("at", 0), ("times", 1), ("plus", None)):
            number = getattr(self, key)
            if type(number) is not int or (least is not None and number < least):
                raise CodecConfigError(f"header: {key} of a field is {number!r}")
        if (self.value == "nbytes") != (self.axis is None) or (
            self.axis is not None and (type(self.axis) is not int or self.axis < 0)
        ):
            raise CodecConfigError(
                f"header: axis of a field {self.value!r} is {self.axis!r}; shape and coordinate "
                "have one, nbytes has none"
            )

    @property
    def nbytes(self) -> int:
        """Number of bytes that the field takes."""
        return struct.calcsize(CODES[self.type])

    def pack(self, value: int) -> bytes:
        """Return the bytes of the field."""
        number = value * self.times + self.plus
        if not 0 <= number < 1 << 8 * self.nbytes:
            raise ChunkEncodeError(
                f"header: {self.value} gives {number}, which does not fit {self.type} at byte "
                f"{self.at}"
            )
        return struct.pack(MARKS[self.endian] + CODES[self.type], number)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON of the field, without defaults."""
        found: dict[str, Json] = {"value": self.value, "at": self.at, "type": self.type}
        found["endian"] = self.endian
        rest = {"axis": (self.axis, None), "times": (self.times, 1), "plus": (self.plus, 0)}
        return found | {key: value for key, (value, default) in rest.items() if value != default}


@dataclass(frozen=True)
class Header:
    """A header of constant length, in which only some fields vary from chunk to chunk.

    It is a function of the encoded chunk: `padding_func` of `Pad`, `prefix_func` of `Offset`.
    """

    template: bytes
    """The whole header; fields have any value in it."""
    fields: tuple[Field, ...] = ()
    """What is written for each chunk."""
    payload: int | None = None
    """Length that every encoded chunk must have; None if it may vary."""
    location: Literal["start", "end"] = field(default="start")
    """Whether it stands before or after the chunk."""

    def __post_init__(self) -> None:
        if self.location not in ("start", "end"):
            raise CodecConfigError(
                f"header: location is {self.location!r}, expected 'start' or 'end'"
            )
        if self.payload is not None and (type(self.payload) is not int or self.payload < 0):
            raise CodecConfigError(f"header: payload is {self.payload!r}, expected a length")
        for one in self.fields:
            if one.at + one.nbytes > self.nbytes:
                raise CodecConfigError(
                    f"header: the field {one.value!r} takes bytes {one.at} to "
                    f"{one.at + one.nbytes}, the template has {self.nbytes}"
                )

    @property
    def nbytes(self) -> int:
        """Length of the header."""
        return len(self.template)

    @property
    def constant(self) -> bytes | None:
        """The header, if it is the same for all chunks; otherwise None."""
        return None if self.fields else self.template

    def __call__(self, chunk: bytes) -> bytes:
        """Return the header for an encoded chunk."""
        return self.fill(len(chunk))

    def fill(
        self, nbytes: int, *, shape: Shape | None = None, coordinates: Shape | None = None
    ) -> bytes:
        """Return the header for a chunk.

        Parameters:
            nbytes: length of the encoded chunk, without the header.
            shape: shape of the chunk; needed if a field asks for it.
            coordinates: its place in the grid of chunks; needed if a field asks for it.

        Raises:
            ChunkEncodeError: a field has no value, or does not fit.
        """
        if self.payload not in (None, nbytes):
            raise ChunkEncodeError(
                f"header: the encoded chunk has {nbytes} bytes, expected {self.payload}"
            )
        made = bytearray(self.template)
        for one in self.fields:
            value = nbytes
            if one.axis is not None:
                known = shape if one.value == "shape" else coordinates
                if known is None or one.axis >= len(known):
                    raise ChunkEncodeError(
                        f"header: {one.value} {one.axis} of the chunk is not known here; write the "
                        "array with zeros as header, then call anychunk.zarr.headers.rebuild"
                    )
                value = known[one.axis]
            made[one.at : one.at + one.nbytes] = one.pack(value)
        return bytes(made)

    def to_json(self) -> dict[str, Json]:
        """Return the value of the attribute."""
        found: dict[str, Json] = {
            "version": 1,
            "template": base64.b64encode(self.template).decode(),
            "fields": [one.to_json() for one in self.fields],
        }
        if self.payload is not None:
            found["payload"] = self.payload
        if self.location != "start":
            found["location"] = self.location
        return found

    def attributes(self) -> dict[str, Json]:
        """Return the attributes that declare the header, for `zarr.create_array`."""
        return {KEY: self.to_json()}

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Return the header that an attribute declares.

        Raises:
            CodecConfigError: the attribute breaks its specification.
        """
        known = {"version", "template", "fields", "payload", "location"}
        if not isinstance(data, Mapping) or set(data) - known or data.get("version") != 1:
            raise CodecConfigError(
                f"header: {data!r:.80} is not a header of version 1; known keys: "
                f"{' '.join(sorted(known))}"
            )
        if type(data["version"]) is not int:
            raise CodecConfigError(f"header: version is {data['version']!r}, expected 1")
        try:
            template = base64.b64decode(data["template"], validate=True)
        except (KeyError, TypeError, binascii.Error, ValueError) as e:
            raise CodecConfigError(f"header: template is missing or not base64: {e}") from e
        listed = data.get("fields", [])
        if not isinstance(listed, list) or len(listed) > MAX_FIELDS:
            raise CodecConfigError(f"header: fields is {listed!r:.80}, expected a list")
        fields = tuple(_field(one) for one in listed)
        payload, location = data.get("payload"), data.get("location", "start")
        if "payload" in data and payload is None:
            raise CodecConfigError("header: payload is null, expected a length")
        return cls(template, fields, payload, location)


def _field(data: Json) -> Field:
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        raise CodecConfigError(f"header: field {data!r:.80}, expected an object")
    known = {"value", "at", "type", "endian", "axis", "times", "plus"}
    if unknown := sorted(set(data) - known):
        raise CodecConfigError(f"header: unknown key {unknown[0]!r} of a field")
    if missing := sorted({"value", "at", "type", "endian"} - set(data)):
        raise CodecConfigError(f"header: required key {missing[0]!r} of a field is missing")
    if "axis" in data and data["axis"] is None:
        raise CodecConfigError("header: axis of a field is null")
    return Field(**data)
