"""Bugs of statements: one is missing, or an error is not returned."""

from typing import Iterator

from mutants import Edit
from syntax import Cursor, Span, Tree

# Calls that change no behaviour, or none but speed.
WITHOUT_EFFECT = frozenset({"AssertHeld", "AssertReaderHeld", "prefetch", "reserve", "shrink_to_fit"})
ERROR_MACRO = "RETURN_IF_ERROR"


def children_in_statement_place(tree: Tree, cursor: Cursor) -> list[Cursor]:
    """Those whose value nothing uses, if they are expressions."""
    kind, children = tree.kind, list(cursor.get_children())
    if cursor.kind == kind.COMPOUND_STMT:
        return children
    if cursor.kind == kind.IF_STMT:
        return [child for child, span in tree.written(children) if tree.source.next_character(span.end) == ";"]
    if cursor.kind in (kind.CASE_STMT, kind.CXX_FOR_RANGE_STMT, kind.DEFAULT_STMT, kind.FOR_STMT, kind.WHILE_STMT):
        return children[-1:]
    return []


def inner(tree: Tree, cursor: Cursor) -> Cursor:
    """Without what the compiler puts around it."""
    while cursor.kind == tree.kind.UNEXPOSED_EXPR and len(children := list(cursor.get_children())) == 1:
        cursor = children[0]
    return cursor


def has_effect(tree: Tree, cursor: Cursor) -> bool:
    kind = tree.kind
    if cursor.kind == kind.CALL_EXPR:
        return cursor.spelling not in WITHOUT_EFFECT
    return cursor.kind in (kind.BINARY_OPERATOR, kind.COMPOUND_ASSIGNMENT_OPERATOR, kind.UNARY_OPERATOR)


def dropped(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    for statement in children_in_statement_place(tree, cursor):
        expression, span = inner(tree, statement), tree.span(statement)
        if span is None or tree.begins_with_macro(span) or tree.source.next_character(span.end) != ";":
            continue
        if has_effect(tree, expression) and not tree.is_left_out(expression):
            end = tree.source.content.index(b";", span.end) + 1
            yield "statement_dropped", Edit(span.begin, end, "" if cursor.kind == tree.kind.COMPOUND_STMT else "{}")


def errors_ignored(tree: Tree, function: Span) -> Iterator[tuple[str, Edit]]:
    """Its expression is still computed, for what it does besides."""
    for name, use in tree.macros:
        if name == ERROR_MACRO and function.begin <= use.begin < function.end:
            yield "error_ignored", Edit(use.begin, use.begin + len(name), "static_cast<void>")
