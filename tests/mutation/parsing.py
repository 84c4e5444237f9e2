"""The mutants of files, which are parsed as their compiler would parse them, and kept until they change."""

import concurrent.futures
import dataclasses
import hashlib
import json
import pathlib
import shlex
from dataclasses import dataclass
from typing import Any

import bindings
import operators
from failure import Failure
from mutants import Mutant, Source
from syntax import Tree

HERE = pathlib.Path(__file__).resolve().parent
PRECOMPILED = "cmake_pch.hxx"


@dataclass(frozen=True)
class Parsed:
    """A file below `root`, and the compiler's options for it."""

    root: pathlib.Path
    path: str
    options: tuple[str, ...]


def options_of(command: str) -> tuple[str, ...]:
    """A compiler's, without files and precompiled headers: `-Xclang -include-pch -Xclang FILE` is nothing."""
    words = shlex.split(command)
    first = next(i for i, word in enumerate(words) if word.endswith(("clang++", "clang++-19")))
    kept: list[str] = []
    for word in words[first + 1:]:
        kept.append(word)
        if PRECOMPILED in word:
            del kept[-4:]
    for option in ("-o", "-c"):
        del kept[kept.index(option):kept.index(option) + 2]
    return tuple(kept)


def parse(parsed: Parsed) -> list[Mutant]:
    """Raises Failure where clang finds errors."""
    clang = bindings.clang()
    path = parsed.root / parsed.path
    # Warnings were seen by the compiler; one is that a header is no source.
    options = [*parsed.options, "-w", *(("-x", "c++") if path.suffix == ".h" else ())]
    try:
        unit = clang.Index.create().parse(str(path), args=options,
                                          options=clang.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
    except clang.TranslationUnitLoadError as error:
        raise Failure(f"{parsed.path} cannot be parsed: {error}") from error
    errors = [str(diagnostic) for diagnostic in unit.diagnostics if diagnostic.severity >= clang.Diagnostic.Error]
    if errors:
        raise Failure(f"{parsed.path} cannot be parsed: {errors[0]}")
    return operators.mutants_of(Tree(unit, Source(parsed.path, path.read_bytes())))


def digest(parsed: Parsed) -> str:
    """Of the file, its options and this tool. Of headers not: a mutant that they make impossible does not compile."""
    content = hashlib.sha256((parsed.root / parsed.path).read_bytes())
    content.update(" ".join(parsed.options).encode())
    for source in sorted(HERE.glob("*.py")):
        content.update(source.read_bytes())
    return content.hexdigest()


def from_json(kept: dict[str, Any]) -> list[Mutant]:
    return [Mutant(**fields) for fields in kept["mutants"]]


def mutants_of(files: list[Parsed], kept_in: pathlib.Path, jobs: int) -> list[Mutant]:
    """Of all files, in their order; what was found before, and cannot have changed, is read from `kept_in`."""
    kept_in.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Mutant]] = {}
    digests = {file.path: digest(file) for file in files}
    for file in files:
        path = kept_in / (file.path.replace("/", "_") + ".json")
        kept = json.loads(path.read_text()) if path.exists() else {"digest": ""}
        if kept["digest"] == digests[file.path]:
            found[file.path] = from_json(kept)
    unknown = [file for file in files if file.path not in found]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        for file, mutants in zip(unknown, pool.map(parse, unknown)):
            fields = {"digest": digests[file.path], "mutants": [dataclasses.asdict(mutant) for mutant in mutants]}
            (kept_in / (file.path.replace("/", "_") + ".json")).write_text(json.dumps(fields))
            found[file.path] = mutants
    return [mutant for file in files for mutant in found[file.path]]
