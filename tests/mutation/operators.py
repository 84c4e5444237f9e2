"""All bugs that can be planted in one file, by clang's syntax tree of it."""

from typing import Iterator

import conditions
import statements
import values
from mutants import Edit, Mutant
from syntax import Cursor, Tree

# Each finds the places of an operator in one node, given the node around it.
FINDERS = (conditions.comparisons, conditions.negated, conditions.unchecked, conditions.sides_dropped,
           statements.dropped, values.literals, values.bounds, values.swapped)


def below(tree: Tree, cursor: Cursor, parent: Cursor) -> Iterator[tuple[str, Edit]]:
    if tree.is_left_out(cursor):
        return
    for find in FINDERS:
        yield from find(tree, cursor, parent)
    for child in cursor.get_children():
        if not conditions.is_for_compiler(tree, child, cursor):
            yield from below(tree, child, cursor)


def in_function(tree: Tree, function: Cursor) -> Iterator[tuple[str, Edit]]:
    for child in function.get_children():
        # Others than the body are what a constructor makes its members from.
        if child.kind == tree.kind.COMPOUND_STMT or child.kind.is_expression():
            yield from below(tree, child, function)
    if span := tree.span(function):
        yield from statements.errors_ignored(tree, span)


def mutants_of(tree: Tree) -> list[Mutant]:
    """In the order of the file, none twice: a macro may use its argument more than once."""
    by_id: dict[str, Mutant] = {}
    for name, function in tree.functions():
        for operator, edit in in_function(tree, function):
            mutant = tree.source.mutant(operator, name, edit)
            by_id.setdefault(mutant.id, mutant)
    return sorted(by_id.values(), key=lambda mutant: (mutant.line, mutant.column, mutant.operator))
