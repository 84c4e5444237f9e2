"""Bugs of conditions: a comparison turned, a condition negated, a check that lets everything pass, a side dropped."""

import re
from typing import Iterator, Optional

from mutants import Edit
from syntax import Cursor, Span, Tree

TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
# What the compiler makes of `a != b` and `a < b` calls one of these too.
COMPARISON_CALLS = frozenset(f"operator{name}" for name in (*TURNED, "<=>"))
COMMENT = re.compile(r"//[^\n]*\n|/\*.*?\*/", re.DOTALL)


def between(tree: Tree, left: Span, right: Span) -> tuple[str, int]:
    """The operator between two operands, and where it is."""
    text = COMMENT.sub(lambda comment: " " * len(comment[0]), tree.source.text(left.end, right.begin))
    return text.strip(), left.end + len(text) - len(text.lstrip())


def operands(tree: Tree, cursor: Cursor) -> Optional[tuple[Span, Span]]:
    """Of an operator with two, in the order in which they are written."""
    if cursor.kind == tree.kind.CALL_EXPR:
        sides = tree.written(list(cursor.get_arguments())) if cursor.spelling in COMPARISON_CALLS else []
    elif cursor.kind == tree.kind.BINARY_OPERATOR:
        sides = tree.written(list(cursor.get_children()))
    else:
        return None
    return (sides[0][1], sides[1][1]) if len(sides) == 2 and sides[0][1].end <= sides[1][1].begin else None


def operator_of(tree: Tree, cursor: Cursor) -> str:
    sides = operands(tree, cursor)
    return between(tree, *sides)[0] if sides else ""


def comparisons(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    if sides := operands(tree, cursor):
        name, at = between(tree, *sides)
        if name in TURNED:
            yield "comparison", Edit(at, at + len(name), TURNED[name])


def sides_dropped(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    span, sides = tree.span(cursor), operands(tree, cursor)
    if span is None or sides is None:
        return
    name, at = between(tree, *sides)
    if name in ("&&", "||"):
        left, right = sides
        yield "left_dropped", Edit(span.begin, right.begin, "", at)
        yield "right_dropped", Edit(left.end, span.end, "", at)


def condition_of(tree: Tree, cursor: Cursor) -> Optional[Cursor]:
    """Of an `if`, `while` or `?:`; none where it declares a variable, or is decided when compiling."""
    kind, children = tree.kind, list(cursor.get_children())
    if cursor.kind == kind.CONDITIONAL_OPERATOR:
        return children[0]
    if cursor.kind not in (kind.IF_STMT, kind.WHILE_STMT):
        return None
    if not re.match(r"(if|while)\s*\(", tree.text(cursor)) or any(child.kind == kind.VAR_DECL for child in children):
        return None
    conditions = [child for child, span in tree.written(children)
                  if child.kind.is_expression() and tree.source.next_character(span.end) == ")"]
    return conditions[0] if conditions else None


def is_for_compiler(tree: Tree, cursor: Cursor, parent: Cursor) -> bool:
    """The condition of `if constexpr`."""
    if parent.kind != tree.kind.IF_STMT or not re.match(r"if\s+constexpr", tree.text(parent)):
        return False
    span = tree.span(cursor)
    return cursor.kind.is_expression() and span is not None and tree.source.next_character(span.end) == ")"


def negated(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    condition = condition_of(tree, cursor)
    span = tree.span(condition) if condition is not None else None
    # A turned `==` is one already.
    if span is None or tree.is_left_out(condition) or operator_of(tree, condition) in ("==", "!="):
        return
    text = tree.source.text(span.begin, span.end)
    is_negation = text.startswith("!") and operator_of(tree, condition) == ""
    if is_negation and cursor.kind != tree.kind.CONDITIONAL_OPERATOR:
        yield "negated", Edit(span.begin, span.begin + 1, "")
    elif tree.span(cursor):
        yield "negated", Edit(span.begin, span.end, f"!({text})")


def ends_in_jump(tree: Tree, cursor: Cursor) -> bool:
    children = list(cursor.get_children())
    if cursor.kind == tree.kind.COMPOUND_STMT:
        return bool(children) and ends_in_jump(tree, children[-1])
    return cursor.kind in (tree.kind.RETURN_STMT, tree.kind.CONTINUE_STMT, tree.kind.BREAK_STMT)


def unchecked(tree: Tree, cursor: Cursor, _: Cursor) -> Iterator[tuple[str, Edit]]:
    """The condition is still computed, for what it does besides."""
    condition = condition_of(tree, cursor) if cursor.kind == tree.kind.IF_STMT else None
    span = tree.span(condition) if condition is not None else None
    if span is None:
        return
    branches = [child for child, branch in tree.written(list(cursor.get_children())) if branch.begin > span.end]
    if len(branches) == 1 and ends_in_jump(tree, branches[0]):
        yield "unchecked", Edit(span.begin, span.end, f"({tree.source.text(span.begin, span.end)}) && false",
                                tree.span(cursor).begin)
