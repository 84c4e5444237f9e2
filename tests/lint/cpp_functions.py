"""Finds the functions of a C++ file: how long they are, how deep they nest, how many parameters they take.

Not a parser: it follows brackets and keywords, which is enough for code that clang-format has laid out. It knows
nothing of macros but that their names are upper case.
"""

import re
from dataclasses import dataclass, field
from typing import Iterator

# Comments, literals and preprocessor lines say nothing about structure; what replaces them keeps the line numbers.
_OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(r"\n|[A-Za-z_]\w*|\d[\w.']*|::|->|&&|\S")
_OPENING, _CLOSING = "([{", ")]}"
_CONTROL = ("if", "for", "while", "switch", "do", "else", "try", "catch")
_MACRO = re.compile(r"[A-Z][A-Z0-9_]+$")
_NOT_A_NAME = ("alignas", "decltype", "explicit", "noexcept", "requires", "sizeof", "static_assert")


@dataclass(frozen=True)
class Function:
    """`lines`: those of the body, None of a declaration. `nesting`: control statements within each other.

    A lambda is a function too, named "lambda"; what it nests does not count for the function that it stands in, its
    lines do.
    """

    name: str
    line: int
    parameters: int
    lines: int | None = None
    nesting: int = 0


@dataclass(frozen=True)
class _Token:
    text: str
    line: int


def without_comments(text: str) -> str:
    """Without literals and preprocessor lines as well; lines keep their numbers."""
    def blank(match: re.Match) -> str:
        stands_for = '""' if match[0][0] in "\"'R" else " "
        return stands_for + "\n" * match[0].count("\n")

    return _OPAQUE.sub(blank, text)


def _tokens(text: str) -> list[_Token]:
    tokens, line = [], 1
    for match in _TOKEN.finditer(without_comments(text)):
        if match[0] == "\n":
            line += 1
        else:
            tokens.append(_Token(match[0], line))
    return tokens


def _pairs(tokens: list[_Token]) -> dict[int, int]:
    """Each opening bracket's index to its closing one's."""
    pairs, opened = {}, []
    for index, token in enumerate(tokens):
        if token.text in _OPENING:
            opened.append(index)
        elif token.text in _CLOSING and opened:
            pairs[opened.pop()] = index
    return pairs


def _count_parameters(tokens: list[_Token]) -> int:
    """Of what stands between the parentheses. A pack may be none."""
    if not tokens or [token.text for token in tokens] == ["void"]:
        return 0
    depth, count = 0, 1
    for token in tokens:
        if token.text in _OPENING or token.text == "<":
            depth += 1
        elif token.text in _CLOSING or token.text == ">":
            depth -= 1
        elif token.text == "," and depth == 0:
            count += 1
    return count - sum(first.text == second.text == third.text == "."
                       for first, second, third in zip(tokens, tokens[1:], tokens[2:]))


@dataclass
class _Scanner:
    tokens: list[_Token]
    pairs: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.pairs = _pairs(self.tokens)

    def text(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def scope(self, begin: int, end: int) -> Iterator[Function]:
        """Of a file, a namespace or a class."""
        head = index = begin
        while index < end:
            text = self.text(index)
            if text == "{":
                close = self.pairs.get(index, end)
                yield from self.block(head, index, close)
                # Braces of initialisers do not end the declaration that they stand in.
                if self.ends_declaration(head, index):
                    head = close + 1
                index = close
            elif text == ";" or (text == ":" and self.text(index - 1) in ("public", "protected", "private")):
                yield from self.declaration(head, index)
                head = index + 1
            elif text in "([":
                index = self.pairs.get(index, end)
            index += 1

    def kind(self, head: int, brace: int) -> str:
        """What the block is that the tokens from `head` lead to."""
        words = [token.text for token in self.tokens[head:brace]]
        if "namespace" in words or words[:2] == ["extern", '""']:
            return "scope"
        if self.parameter_list(head, brace) is not None and "=" not in self.outside(head, brace):
            return "function" if self.starts_body(head, brace) else "initialiser"
        if any(word in ("class", "struct", "union") for word in self.outside(head, brace)) and "=" not in words:
            return "scope"
        return "initialiser"

    def ends_declaration(self, head: int, brace: int) -> bool:
        return self.kind(head, brace) != "initialiser"

    def outside(self, begin: int, end: int) -> list[str]:
        """The words that stand outside of brackets, of templates' too."""
        words, index, angles = [], begin, 0
        while index < end:
            text = self.text(index)
            if text in _OPENING and self.pairs.get(index, end) < end:
                index = self.pairs[index]
            elif text == "<" and self.text(index - 1) != "operator":
                angles += 1
            elif text == ">" and angles:
                angles -= 1
            elif angles == 0:
                words.append(text)
            index += 1
        return words

    def parameter_list(self, head: int, end: int) -> int | None:
        """The index of its opening parenthesis, if the tokens declare a function."""
        index, angles = head, 0
        while index < end:
            text, before = self.text(index), self.text(index - 1)
            if text == "=" and angles == 0 and "operator" not in (before, self.text(index - 2)):
                return None
            if text == "<" and before != "operator":
                angles += 1
            elif text == ">" and angles:
                angles -= 1
            elif text == "(" and angles == 0 and index > head:
                is_call_operator = before == "operator" and self.text(index + 1) == ")"
                if is_call_operator:
                    index += 2
                    continue
                is_operator = "operator" in (self.text(index - 2), self.text(index - 3))
                if is_operator or not (_MACRO.match(before) or before in (*_NOT_A_NAME, "=", ",")):
                    return index
                index = self.pairs.get(index, end)
            elif text in "[{":
                index = self.pairs.get(index, end)
            index += 1
        return None

    def starts_body(self, head: int, brace: int) -> bool:
        """Or does the brace initialise a member in the list of a constructor?"""
        opening = self.parameter_list(head, brace)
        assert opening is not None
        after = [self.text(index) for index in range(self.pairs[opening] + 1, brace)]
        is_name = re.match(r"\w+$|>$", self.text(brace - 1))
        return not (":" in after and is_name)

    def name(self, opening: int) -> str:
        index = opening - 1
        if self.text(index) == ")" or not re.match(r"\w", self.text(index)):
            while index > 0 and self.text(index) != "operator" and opening - index < 4:
                index -= 1
        name = "".join(self.text(i) for i in range(index, opening))
        while self.text(index - 1) in ("::", "~"):
            name = self.text(index - 1) + name
            index -= 1
            if name.startswith("::") and re.match(r"\w", self.text(index - 1)):
                name = self.text(index - 1) + name
                index -= 1
        return name

    def parameters(self, opening: int) -> int:
        return _count_parameters(self.tokens[opening + 1:self.pairs[opening]])

    def declaration(self, head: int, end: int) -> Iterator[Function]:
        opening = self.parameter_list(head, end)
        words = [token.text for token in self.tokens[head:end]]
        if opening is None or opening not in self.pairs or set(words) & {"using", "friend", "typedef"}:
            return
        if opening - head >= 1 and re.match(r"\w|[>&*~=)]", self.text(opening - 1)):
            yield Function(self.name(opening), self.tokens[opening].line, self.parameters(opening))

    def block(self, head: int, brace: int, close: int) -> Iterator[Function]:
        kind = self.kind(head, brace)
        if kind == "scope":
            yield from self.scope(brace + 1, close)
        elif kind == "function":
            opening = self.parameter_list(head, brace)
            assert opening is not None
            yield self.function(self.name(opening), opening, brace, close)
            yield from self.lambdas(self.pairs[opening] + 1, close)
        else:
            yield from self.lambdas(brace, close)

    def function(self, name: str, opening: int | None, brace: int, close: int) -> Function:
        lines = max(0, self.tokens[close].line - self.tokens[brace].line - 1)
        line = self.tokens[brace if opening is None else opening].line
        parameters = 0 if opening is None else self.parameters(opening)
        return Function(name, line, parameters, lines, self.nesting(brace + 1, close))

    def lambda_body(self, index: int) -> tuple[int | None, int] | None:
        """Where a lambda that begins at `index` has its parameters, if any, and its body."""
        if self.text(index) != "[" or re.match(r"\w|[\])]", self.text(index - 1)) and \
                self.text(index - 1) not in ("return", "co_return"):
            return None
        after, opening = self.pairs.get(index, index) + 1, None
        if self.text(after) == "(":
            opening, after = after, self.pairs.get(after, after) + 1
        while self.text(after) not in ("{", ";", ",", ")", "}", "]", ""):
            after += 1
        return (opening, after) if self.text(after) == "{" and after in self.pairs else None

    def lambdas(self, begin: int, end: int) -> Iterator[Function]:
        for index in range(begin, end):
            if found := self.lambda_body(index):
                opening, brace = found
                yield self.function("lambda", opening, brace, self.pairs[brace])

    def nesting(self, begin: int, end: int) -> int:
        """Of the control statements from `begin`, without those in lambdas."""
        deepest, index = 0, begin
        while index < end:
            if found := self.lambda_body(index):
                index = self.pairs[found[1]] + 1
            elif self.text(index) in _CONTROL:
                index, depth = self.statement(index, end)
                deepest = max(deepest, depth)
            else:
                index += 1
        return deepest

    def statement(self, index: int, end: int) -> tuple[int, int]:
        """Of the control statement at `index`: the index after it, and how deep it nests.

        One that ends with its line, as `if (done) return;`, is no level.
        """
        after = index + 1
        if self.text(index) == "else" and self.text(after) == "if":
            return self.statement(after, end)
        while self.text(after) in ("constexpr", "!"):
            after += 1
        inside = 0
        if self.text(after) == "(":
            close = self.pairs.get(after, end)
            inside = self.nesting(after + 1, close)
            after = close + 1
        if self.text(after) == "{":
            close = self.pairs.get(after, end)
            return close + 1, max(inside, 1 + self.nesting(after + 1, close))
        if self.text(after) in _CONTROL:
            following, inner = self.statement(after, end)
            return following, 1 + inner
        close = after
        while close < end and self.text(close) != ";":
            close = self.pairs.get(close, close) + 1
        return close + 1, max(inside, self.nesting(after, close))


def functions(text: str) -> list[Function]:
    """All functions that `text` declares or defines, lambdas in functions included, in no certain order."""
    tokens = _tokens(text)
    return list(_Scanner(tokens).scope(0, len(tokens)))
