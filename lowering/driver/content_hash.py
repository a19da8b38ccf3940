"""Content hash of a module or an op: equal content gives equal numbers, independent of value names and
locations.

    content_hash(module)    # "5f0c..."; another attribute, type, constant or operand order gives another hash
"""

from __future__ import annotations

from hashlib import sha256

from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.data import ConstantOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.errors import checked


def content_hash(op: Operation, *, every: bool = False) -> str:
    """Computes the SHA-256 of op names, ONNX versions, attributes, types, constants and the data flow of `op`.

    Names of values and locations do not count. A class may list in `NOT_HASHED` the attributes that do not
    change its result. All other attributes count, so none can be forgotten. With `every`, the `NOT_HASHED`
    ones count too. The result is 64 hexadecimal digits.
    """
    checked(op, Operation, "op", "a module or an op", PopulusError)
    hash = sha256()
    numbers: dict[SSAValue, int] = {}

    def say(*parts: object) -> None:
        for part in parts:
            text = str(part).encode()
            hash.update(len(text).to_bytes(8, "little"))
            hash.update(text)

    def number(value: SSAValue) -> int:
        return numbers.setdefault(value, len(numbers))

    def attributes(kind: str, attributes_by_name: dict[str, Attribute], skipped: frozenset[str]) -> None:
        for name in sorted(attributes_by_name.keys() - skipped):
            say(kind, name, attributes_by_name[name])

    def visit(op: Operation) -> None:
        say("op", op.name, getattr(op, "ONNX", ""), len(op.operands), len(op.results))
        for operand in op.operands:
            say(number(operand), operand.type)
        skipped = frozenset[str](() if every else getattr(op, "NOT_HASHED", ()))
        if isinstance(op, ConstantOp):
            array = op.array()
            say("constant", array.dtype, array.shape)
            hash.update(array.tobytes())
            skipped |= {"value"}
        attributes("property", op.properties, skipped)
        attributes("attribute", op.attributes, skipped)
        for result in op.results:
            say(number(result), result.type)
        for region in op.regions:
            say("region", len(region.blocks))
            for block in region.blocks:
                enter(block)

    def enter(block: Block) -> None:
        say("block", len(block.args), len(block.ops))
        for argument in block.args:
            say(number(argument), argument.type)
        for inner in block.ops:
            visit(inner)

    visit(op)
    return hash.hexdigest()
