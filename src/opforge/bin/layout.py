"""Constants and records of the .bin format (runtime/format/FORMAT.md), as NumPy dtypes."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

__all__ = [
    "ALIGNMENT",
    "ATTRIBUTE",
    "BLOCK",
    "DIMENSION",
    "GRAPH",
    "HEADER",
    "LAYOUT_KINDS",
    "MAGIC",
    "MIN_READER",
    "NODE",
    "OPERATOR",
    "PLAN_ENTRY",
    "SECTION",
    "SMALL",
    "VALUE",
    "VALUE_KINDS",
    "VERSION",
    "AttributeKind",
    "DimensionOp",
    "Kind",
]

MAGIC = b"\x89OFB\r\n\x1a\n"
VERSION = 0
MIN_READER = 0
ALIGNMENT = 64
BLOCK = 1 << 20
"""Bytes of weights under one checksum."""
SMALL = 64 << 10
"""Constants up to this size come first in the weights."""
LAYOUT_KINDS = ("plain", "c16", "nhwc", "nhwc16")
VALUE_KINDS = ("tensor", "sequence", "optional", "optional_sequence")


class Kind(IntEnum):
    """Section kinds."""

    STRINGS = 1
    DIMENSIONS = 2
    VALUES = 3
    PROGRAM = 4
    BYTECODE = 5
    SIGNATURE = 6
    OPERATORS = 7
    TARGET = 8
    METADATA = 9
    CHECKSUMS = 10
    WEIGHTS = 11
    PLAN = 12
    DEBUG = 13


class DimensionOp(IntEnum):
    """Nodes of dimension expressions."""

    NUMBER = 0
    SYMBOL = 1
    RUNTIME = 2
    ADD = 3
    SUB = 4
    MUL = 5
    FLOORDIV = 6
    CEILDIV = 7
    MIN = 8
    MAX = 9


class AttributeKind(IntEnum):
    """Types of node attributes."""

    INT = 1
    FLOAT = 2
    STRING = 3
    INTS = 5
    FLOATS = 6
    STRINGS = 7
    BYTECODE = 9
    GRAPH = 10


HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("min_reader", "<u4"),
        ("sections", "<u4"),
        ("flags", "<u4"),
        ("file_size", "<u8"),
        ("table_offset", "<u8"),
        ("entry_size", "<u4"),
        ("reserved", "V12"),
        ("table_crc", "<u4"),
        ("header_crc", "<u4"),
    ]
)
SECTION = np.dtype(
    [
        ("kind", "<u4"),
        ("flags", "<u4"),
        ("dtype", "<u4"),
        ("crc", "<u4"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("name", "S24"),
        ("count", "<u4"),
        ("reserved", "<u4"),
    ]
)
DIMENSION = np.dtype([("op", "<u4"), ("a", "<u4"), ("b", "<i8")])
VALUE = np.dtype(
    [
        ("name", "<u4"),
        ("dtype", "u1"),
        ("rank", "i1"),
        ("layout", "u1"),
        ("flags", "u1"),
        ("halo", "u1", 4),
        ("first_dimension", "<u4"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("packing", "<u4"),
        ("quantisation", "u1"),
        ("quantisation_axis", "i1"),
        ("quantisation_block", "<u2"),
        ("scale", "<i4"),
        ("zero_point", "<i4"),
        ("kind", "u1"),
        ("reserved", "V15"),
    ]
)
GRAPH = np.dtype(
    [
        ("name", "<u4"),
        ("first_node", "<u4"),
        ("nodes", "<u4"),
        ("first_input", "<u4"),
        ("inputs", "<u4"),
        ("first_output", "<u4"),
        ("outputs", "<u4"),
        ("first_capture", "<u4"),
        ("captures", "<u4"),
        ("reserved", "<u4"),
    ]
)
NODE = np.dtype(
    [
        ("domain", "<u4"),
        ("op", "<u4"),
        ("since_version", "<u4"),
        ("flags", "<u4"),
        ("first_input", "<u4"),
        ("inputs", "<u4"),
        ("first_output", "<u4"),
        ("outputs", "<u4"),
        ("first_attribute", "<u4"),
        ("attributes", "<u4"),
        ("reserved", "<u8"),
    ]
)
ATTRIBUTE = np.dtype([("name", "<u4"), ("kind", "<u4"), ("count", "<u4"), ("reserved", "<u4"), ("payload", "<u8")])
OPERATOR = np.dtype(
    [
        ("domain", "<u4"),
        ("name", "<u4"),
        ("version", "<i4"),
        ("library", "<u4"),
        ("schema_hash", "<u4"),
        ("content_hash", "<u4"),
        ("signature", "<u4"),
        ("types", "<u4"),
    ]
)
PLAN_ENTRY = np.dtype([("kind", "<u4"), ("id", "<u4"), ("offset", "<u8"), ("size", "<u8")])
