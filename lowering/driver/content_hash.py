"""What a module or an op computes, as a number: equal for equal content, whatever values are called and wherever ops come from.

content_hash(module)    # "5f0c..."; another attribute, type, constant or order of operands gives another
"""

from __future__ import annotations

from hashlib import sha256

from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.data import ConstantOp


def content_hash(op: Operation, *, every: bool = False) -> str:
    """SHA-256 of names, ONNX versions, attributes, types, constants, and how values flow; names of values and locations are left out.

    A class may state `NOT_HASHED`, names of attributes that change nothing of what it computes. All others count: none can be forgotten.
    With `every`, those of `NOT_HASHED` count too.
    """
    hash = sha256()
    numbers: dict[SSAValue, int] = {}

    def say(*parts: object) -> None:
        for part in parts:
            text = str(part).encode()
            hash.update(len(text).to_bytes(8, "little"))
            hash.update(text)

    def number(value: SSAValue) -> int:
        return numbers.setdefault(value, len(numbers))

    def attributes(kind: str, found: dict[str, Attribute], skipped: frozenset[str]) -> None:
        for name in sorted(found.keys() - skipped):
            say(kind, name, found[name])

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
