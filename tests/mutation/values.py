"""Bugs of values: off by one, and two arguments in each other's place."""

import re
from typing import Iterator

import conditions
from mutants import Edit
from syntax import Cursor, Span, Tree

PLAIN = re.compile(r"\d|[1-9]\d*")
ZERO = re.compile(r"0[uUlLzZ]*")
LITERAL = re.compile(r"(0[xX][\da-fA-F']+|[\d']+)[uUlLzZ]*")
# A bound moves to where turning the comparison does not move it.
MOVED = {"<": ("minus_one", " - 1"), ">=": ("minus_one", " - 1"), "<=": ("plus_one", " + 1"), ">": ("plus_one", " + 1")}
# What a literal must not do, since the comparison before it is turned as well: x < 0 to x < 1, which is x <= 0.
SAME_AS_TURNED = {"<": "plus_one", "<=": "minus_one", ">": "minus_one", ">=": "plus_one"}
COMPARED = re.compile(rb"[^<>=-](<=|>=|<|>)\s*\Z")
SIMPLE = re.compile(r"(?:[\w.:()\[\]]|->)+")
SYMMETRIC = frozenset({"gcd", "iter_swap", "lcm", "max", "min", "minmax", "swap"})


def is_for_compiler(tree: Tree, cursor: Cursor, parent: Cursor) -> bool:
    """The number of a case or of an enumerator, an argument of a template, or how long an array is."""
    kind, span = tree.kind, tree.span(cursor)
    if parent.kind in (kind.CASE_STMT, kind.ENUM_CONSTANT_DECL, kind.TEMPLATE_REF, kind.TYPE_REF):
        return True
    if parent.kind in (kind.VAR_DECL, kind.FIELD_DECL):
        is_type = span.end <= (tree.offset(parent.location) or 0)
        return is_type or tree.source.next_character(span.end) == "]"
    return parent.kind != kind.BINARY_OPERATOR and tree.source.next_character(span.end) == ">"


def compared_by(tree: Tree, span: Span) -> str:
    """The operator whose right side is this and nothing else."""
    before = COMPARED.search(tree.source.content[max(0, span.begin - 80):span.begin])
    is_all = tree.source.next_character(span.end) in set(");&|?:,]}")
    return before[1].decode() if before and is_all else ""


def moved(literal: str, step: int) -> str:
    if PLAIN.fullmatch(literal):
        return str(int(literal) + step)
    return f"({literal} {'+' if step > 0 else '-'} {abs(step)})"


def literals(tree: Tree, cursor: Cursor, parent: Cursor) -> Iterator[tuple[str, Edit]]:
    if cursor.kind != tree.kind.INTEGER_LITERAL:
        return
    span, text = tree.span(cursor), tree.text(cursor)
    if not LITERAL.fullmatch(text) or is_for_compiler(tree, cursor, parent):
        return
    steps = {"plus_one": 1} if ZERO.fullmatch(text) else {"plus_one": 1, "minus_one": -1}
    for operator, step in steps.items():
        if operator != SAME_AS_TURNED.get(compared_by(tree, span)):
            yield operator, Edit(span.begin, span.end, moved(text, step))


def is_integer(tree: Tree, cursor: Cursor) -> bool:
    types = tree.clang.TypeKind
    return cursor.type.get_canonical().kind in (
        types.INT, types.UINT, types.LONG, types.ULONG, types.LONGLONG, types.ULONGLONG, types.SHORT, types.USHORT)


def bounds(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    if cursor.kind != tree.kind.BINARY_OPERATOR or not (sides := conditions.operands(tree, cursor)):
        return
    name, right = conditions.between(tree, *sides)[0], sides[1]
    text = tree.source.text(right.begin, right.end)
    if name not in MOVED or not all(is_integer(tree, side) for side in cursor.get_children()):
        return
    # Literals are moved by themselves.
    if LITERAL.fullmatch(text.lstrip("-")):
        return
    operator, step = MOVED[name]
    if SIMPLE.fullmatch(text):
        yield operator, Edit(right.end, right.end, step, right.begin)
    else:
        yield operator, Edit(right.begin, right.end, f"({text}){step}")


def type_of(cursor: Cursor) -> str:
    """Without what does not matter for a value; empty where a template's argument decides it."""
    name = re.sub(r"^const |\s*&+$", "", cursor.type.get_canonical().spelling)
    return "" if "dependent" in name or "type-parameter" in name else name


def arguments(tree: Tree, cursor: Cursor) -> list[Cursor]:
    if cursor.kind == tree.kind.INIT_LIST_EXPR:
        return list(cursor.get_children())
    is_call = cursor.kind == tree.kind.CALL_EXPR and cursor.spelling not in SYMMETRIC
    if not is_call or (cursor.spelling.startswith("operator") and cursor.spelling != "operator()"):
        return []
    return list(cursor.get_arguments())


def swapped(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    written = tree.written(arguments(tree, cursor))
    for (one, left), (other, right) in zip(written, written[1:]):
        if not type_of(one) or type_of(one) != type_of(other):
            continue
        first, second = tree.text(one), tree.text(other)
        # Neither a named member nor an argument that the compiler adds.
        if first.startswith(".") or second.startswith(".") or first == second or left.end > right.begin:
            continue
        if conditions.between(tree, left, right)[0] == ",":
            separator = tree.source.text(left.end, right.begin)
            yield "swapped", Edit(left.begin, right.end, second + separator + first)
