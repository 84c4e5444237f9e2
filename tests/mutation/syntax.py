"""Where in a file the nodes of clang's syntax tree are written, and which of them are no behaviour of the product."""

import ctypes
import re
from dataclasses import dataclass
from typing import Any, Iterator, Optional

import bindings
from mutants import Source

Cursor = Any  # clang.cindex.Cursor, which has no types

# Prose and records: what no test is to hold word for word.
LOGGING = frozenset({"Log", "LogDebug", "LogError", "LogInfo", "LogWarning"})
TEXT = frozenset({"StrAppend", "StrAppendFormat", "StrCat", "StrFormat", "StrJoin", "Substitute"})
# They fail by a bug of ours alone: a program without them is the same.
CHECKS = re.compile(r"D?CHECK(_[A-Z]+)?")


@dataclass(frozen=True)
class Span:
    """Bytes of a file."""

    begin: int
    end: int


class Tree:
    """The syntax tree of one file."""

    def __init__(self, unit: Any, source: Source) -> None:
        self.clang = bindings.clang()
        self.kind = self.clang.CursorKind
        self.source = source
        self._unit = unit
        self.macros = sorted(self._macro_uses(), key=lambda use: use[1].begin)
        self._checks = [self._to_semicolon(span) for name, span in self.macros if CHECKS.fullmatch(name)]

    def offset(self, location: Any) -> Optional[int]:
        """Where it is written: what is in a macro's argument there, what is in its body where the macro is used."""
        file, offset = self.clang.c_object_p(), ctypes.c_uint()
        self.clang.conf.lib.clang_getFileLocation(location, ctypes.byref(file), None, None, ctypes.byref(offset))
        is_here = bool(file) and self.clang.File(file).name == self._unit.spelling
        return offset.value if is_here else None

    def span(self, cursor: Cursor) -> Optional[Span]:
        """Of a node that is written in this file; none if it begins in a macro's argument and ends in its body."""
        span = self._span(cursor)
        if span is None or any(use.begin < span.begin < use.end <= span.end for _, use in self.macros):
            return None
        return span

    def text(self, cursor: Cursor) -> str:
        span = self.span(cursor)
        return self.source.text(span.begin, span.end) if span else ""

    def written(self, cursors: list[Cursor]) -> list[tuple[Cursor, Span]]:
        """Those of the nodes that are written in this file, in its order."""
        spans = [(cursor, span) for cursor in cursors if (span := self.span(cursor))]
        return sorted(spans, key=lambda entry: entry[1].begin)

    def begins_with_macro(self, span: Span) -> bool:
        return any(use.begin == span.begin for _, use in self.macros)

    def is_left_out(self, cursor: Cursor) -> bool:
        """Prose, records, checks of our own bugs, and what is decided when compiling."""
        if cursor.kind == self.kind.STATIC_ASSERT:
            return True
        if cursor.kind == self.kind.CALL_EXPR and self._is_prose(cursor):
            return True
        span = self._span(cursor)
        return span is not None and any(check.begin <= span.begin < check.end for check in self._checks)

    def functions(self) -> Iterator[tuple[str, Cursor]]:
        """Those that have their bodies in this file, with the names of their classes: Arena::Free."""
        for cursor in self._unit.cursor.get_children():
            if cursor.kind.is_declaration() and self.offset(cursor.location) is not None:
                yield from self._functions_of(cursor)

    def _is_prose(self, call: Cursor) -> bool:
        name = call.spelling
        if name in LOGGING or name in TEXT or name.endswith("Error"):
            return True
        # What makes an error from words: refuse("version", expected, found).
        makes_status = call.type.get_canonical().spelling == "absl::Status"
        return makes_status and any(self.text(argument).startswith('"') for argument in call.get_arguments())

    def _span(self, cursor: Cursor) -> Optional[Span]:
        begin, end = self.offset(cursor.extent.start), self.offset(cursor.extent.end)
        return Span(begin, end) if begin is not None and end is not None and begin < end else None

    def _macro_uses(self) -> Iterator[tuple[str, Span]]:
        for cursor in self._unit.cursor.get_children():
            if cursor.kind == self.kind.MACRO_INSTANTIATION and (span := self._span(cursor)):
                yield cursor.spelling, span

    def _to_semicolon(self, span: Span) -> Span:
        """What is streamed into a check belongs to it."""
        rest = re.compile(rb'(?:"(?:[^"\\]|\\.)*"|[^;"])*').match(self.source.content, span.end)
        return Span(span.begin, rest.end() if rest else span.end)

    def _functions_of(self, cursor: Cursor) -> Iterator[tuple[str, Cursor]]:
        kind = self.kind
        if cursor.kind in (kind.FUNCTION_DECL, kind.FUNCTION_TEMPLATE, kind.CXX_METHOD, kind.CONSTRUCTOR,
                           kind.DESTRUCTOR, kind.CONVERSION_FUNCTION):
            if any(child.kind == kind.COMPOUND_STMT for child in cursor.get_children()):
                yield self._name(cursor), cursor
        elif cursor.kind in (kind.NAMESPACE, kind.LINKAGE_SPEC, kind.UNEXPOSED_DECL, kind.STRUCT_DECL, kind.CLASS_DECL,
                             kind.CLASS_TEMPLATE, kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION, kind.FRIEND_DECL):
            for child in cursor.get_children():
                yield from self._functions_of(child)

    def _name(self, cursor: Cursor) -> str:
        names, around = [cursor.spelling], cursor.semantic_parent
        while around is not None and around.kind not in (self.kind.NAMESPACE, self.kind.TRANSLATION_UNIT):
            names.insert(0, around.spelling)
            around = around.semantic_parent
        return "::".join(names)
