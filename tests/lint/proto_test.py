#!/usr/bin/env python3
"""Fails when the API's messages break what was released.

    proto_test.py                 compares proto/ with tests/lint/proto_baseline.txt
    proto_test.py --record        makes the baseline anew; docs/releasing.md says when
    proto_test.py --protoc FILE   with this compiler instead of the one on the path

The baseline lists messages, enums and services as they were released. What it has must stay: every field with its
number, name, type, label and oneof, every enum value, service and method with its types. Additions are free. A number
or name that is no longer used must be reserved, so that nothing else ever gets it.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASELINE = pathlib.Path(__file__).with_name("proto_baseline.txt")

# Protocols that are no API, with the reason. No other file may import them.
INTERNAL = {
    "crossmesh/v1/gpu_process.proto": "a worker and the process of its GPU are of one build, and compare that first",
}

RESERVED_MAX = 1000

SCALAR = re.compile(r'\s*(\w+): (?:"(.*)"|(\S+))$')


@dataclass(frozen=True)
class Field:
    number: int
    name: str
    type: str
    label: str  # singular, optional or repeated
    oneof: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.name} {self.label} {self.type}" + (f" in {self.oneof}" if self.oneof else "")


@dataclass
class Numbered:
    """A message with its fields, or an enum with its values, by number; and what is reserved."""

    fields: dict[int, Field] = field(default_factory=dict)
    reserved_numbers: set[int] = field(default_factory=set)
    reserved_names: set[str] = field(default_factory=set)

    def names(self) -> set[str]:
        return {entry.name for entry in self.fields.values()}


@dataclass
class Api:
    """Names are full: crossmesh.v1.Mesh."""

    release: str = ""
    messages: dict[str, Numbered] = field(default_factory=dict)
    enums: dict[str, Numbered] = field(default_factory=dict)
    services: dict[str, dict[str, str]] = field(default_factory=dict)  # method name to its types


# --- from protoc ---


def parse_text(lines: list[str]) -> dict[str, list]:
    """A message in protobuf's text format, as protoc prints it: values and messages by field name, in order."""
    root: dict[str, list] = {}
    stack = [root]
    for line in lines:
        if line.endswith("{"):
            stack.append({})
            stack[-2].setdefault(line[:-1].strip(), []).append(stack[-1])
        elif line.strip() == "}":
            stack.pop()
        elif match := SCALAR.match(line):
            stack[-1].setdefault(match[1], []).append(match[2] if match[2] is not None else match[3])
        else:
            raise ValueError(f"protoc --decode: expected a field, found {line!r}")
    return root


def one(message: dict[str, list], name: str, default: str = "") -> str:
    return message.get(name, [default])[0]


def reserve(entry: Numbered, descriptor: dict[str, list], last_is_reserved: bool) -> None:
    """Ranges of messages are half open, those of enums closed."""
    for numbers in descriptor.get("reserved_range", []):
        reserved = range(int(one(numbers, "start", "0")), int(one(numbers, "end", "0")) + last_is_reserved)
        if len(reserved) > RESERVED_MAX:
            raise ValueError(f"{one(descriptor, 'name')}: expected at most {RESERVED_MAX} reserved numbers in a range, "
                             f"found {len(reserved)}")
        entry.reserved_numbers.update(reserved)
    entry.reserved_names.update(descriptor.get("reserved_name", []))


def add_enum(api: Api, scope: str, descriptor: dict[str, list]) -> None:
    entry = api.enums.setdefault(f"{scope}.{one(descriptor, 'name')}", Numbered())
    for value in descriptor.get("value", []):
        number = int(one(value, "number", "0"))
        entry.fields[number] = Field(number, one(value, "name"), "value", "singular")
    reserve(entry, descriptor, last_is_reserved=True)


def add_message(api: Api, scope: str, descriptor: dict[str, list]) -> None:
    full_name = f"{scope}.{one(descriptor, 'name')}"
    entry = api.messages.setdefault(full_name, Numbered())
    oneofs = [one(oneof, "name") for oneof in descriptor.get("oneof_decl", [])]
    for described in descriptor.get("field", []):
        number = int(one(described, "number"))
        kind = one(described, "type").removeprefix("TYPE_").lower()
        label = {"LABEL_REPEATED": "repeated"}.get(one(described, "label"), "singular")
        oneof = ""
        # The compiler gives a field that is `optional` a oneof of its own.
        if one(described, "proto3_optional") == "true":
            label = "optional"
        elif "oneof_index" in described:
            oneof = oneofs[int(one(described, "oneof_index"))]
        type_name = one(described, "type_name").removeprefix(".") or kind
        entry.fields[number] = Field(number, one(described, "name"), type_name, label, oneof)
    reserve(entry, descriptor, last_is_reserved=False)
    for nested in descriptor.get("nested_type", []):
        add_message(api, full_name, nested)
    for nested in descriptor.get("enum_type", []):
        add_enum(api, full_name, nested)


def method_types(method: dict[str, list]) -> str:
    def side(kind: str, streaming: str) -> str:
        return ("stream " if one(method, streaming) == "true" else "") + one(method, kind).removeprefix(".")

    return f"({side('input_type', 'client_streaming')}) returns ({side('output_type', 'server_streaming')})"


def api_of(descriptor_set: dict[str, list]) -> Api:
    """All files but those of INTERNAL."""
    api = Api()
    for file in descriptor_set.get("file", []):
        if one(file, "name") in INTERNAL:
            continue
        package = one(file, "package")
        for message in file.get("message_type", []):
            add_message(api, package, message)
        for enum in file.get("enum_type", []):
            add_enum(api, package, enum)
        for service in file.get("service", []):
            api.services[f"{package}.{one(service, 'name')}"] = {
                one(method, "name"): method_types(method) for method in service.get("method", [])}
    return api


def compile_protos(folder: pathlib.Path, protoc: str) -> dict[str, list]:
    """The descriptor set of all .proto files below `folder`, which protoc writes and then prints as text."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
    compiled = subprocess.run([protoc, f"--proto_path={folder}", "--descriptor_set_out=/dev/stdout", *files],
                              check=True, stdout=subprocess.PIPE).stdout
    text = subprocess.run([protoc, "--decode=google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto"],
                          check=True, input=compiled, stdout=subprocess.PIPE).stdout
    return parse_text(text.decode().splitlines())


# --- the baseline ---


def to_text(api: Api) -> str:
    lines = ["# The API as it was released; made by tests/lint/proto_test.py --record.", f"release {api.release}"]
    for kind, entries in (("message", api.messages), ("enum", api.enums)):
        for name, entry in sorted(entries.items()):
            lines += ["", f"{kind} {name}"]
            lines += [f"  {entry.fields[number]}" for number in sorted(entry.fields)]
            lines += [f"  reserved {number}" for number in sorted(entry.reserved_numbers)]
            lines += [f"  reserved {name}" for name in sorted(entry.reserved_names)]
    for name, methods in sorted(api.services.items()):
        lines += ["", f"service {name}"]
        lines += [f"  {method} {types}" for method, types in sorted(methods.items())]
    return "\n".join(lines) + "\n"


def from_text(text: str) -> Api:
    api = Api()
    kind, entry, methods = "", Numbered(), {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if line.startswith("release "):
            api.release = words[1]
        elif not line.startswith(" "):
            kind = words[0]
            if kind == "service":
                methods = api.services.setdefault(words[1], {})
            else:
                entry = (api.messages if kind == "message" else api.enums).setdefault(words[1], Numbered())
        elif kind == "service":
            methods[words[0]] = line.strip().split(" ", 1)[1]
        elif words[0] == "reserved":
            if words[1].lstrip("-").isdigit():
                entry.reserved_numbers.add(int(words[1]))
            else:
                entry.reserved_names.add(words[1])
        else:
            number, name, label, type_name = words[:4]
            entry.fields[int(number)] = Field(int(number), name, type_name, label, words[5] if len(words) > 5 else "")
    return api


# --- the rules ---


def field_breaks(where: str, old: Field, now: Numbered) -> list[str]:
    found = now.fields.get(old.number)
    if found == old:
        return []
    elsewhere = [other.number for other in now.fields.values() if other.name == old.name]
    if elsewhere and elsewhere != [old.number]:
        return [f"{where}: {old.name} had number {old.number}, now {elsewhere[0]}"]
    if found is None:
        return [f"{where}: {old.name} ({old.number}) was removed"]
    return [
        f"{where}: {old.name} ({old.number}) had {what} {before or 'none'}, now {after or 'none'}"
        for what, before, after in (("name", old.name, found.name), ("type", old.type, found.type),
                                    ("label", old.label, found.label), ("oneof", old.oneof, found.oneof))
        if before != after
    ]


def breaks(released: Api, now: Api) -> list[str]:
    """What users of the released API would miss or misread."""
    problems = []
    for kind, old_entries, new_entries in (("message", released.messages, now.messages),
                                           ("enum", released.enums, now.enums)):
        for name, old in sorted(old_entries.items()):
            if name not in new_entries:
                problems.append(f"{kind} {name} was removed")
                continue
            for number in sorted(old.fields):
                problems += field_breaks(f"{kind} {name}", old.fields[number], new_entries[name])
    for name, old_methods in sorted(released.services.items()):
        if name not in now.services:
            problems.append(f"service {name} was removed")
            continue
        for method, types in sorted(old_methods.items()):
            found = now.services[name].get(method)
            if found is None:
                problems.append(f"service {name}: method {method} was removed")
            elif found != types:
                problems.append(f"service {name}: method {method} was {types}, now {found}")
    return problems


def not_kept(what: str, used: set, reserved: set, used_now: set, reserved_now: set) -> list[str]:
    """Of numbers or names: those that must be reserved and are free, or are used for something else."""
    return [f'{what} "{entry}" was reserved, and is used again' if entry in used_now
            else f'{what} "{entry}" is not used any more: reserve it'
            for entry in sorted((used | reserved) - reserved_now)
            if entry in reserved or entry not in used_now]


def unreserved(released: Api, now: Api) -> list[str]:
    """Numbers and names that another use could get."""
    problems = []
    for kind, old_entries, new_entries in (("message", released.messages, now.messages),
                                           ("enum", released.enums, now.enums)):
        for name in sorted(old_entries.keys() & new_entries.keys()):
            old, new = old_entries[name], new_entries[name]
            found = not_kept("number", set(old.fields), old.reserved_numbers, set(new.fields), new.reserved_numbers)
            found += not_kept("name", old.names(), old.reserved_names, new.names(), new.reserved_names)
            problems += [f"{kind} {name}: {problem}" for problem in found]
    return problems


def internal_problems(descriptor_set: dict[str, list]) -> list[str]:
    files = {one(file, "name"): file for file in descriptor_set.get("file", [])}
    problems = [f"{name}: is exempt as internal, and does not exist" for name in INTERNAL if name not in files]
    for name, file in sorted(files.items()):
        problems += [f"{name}: imports {other}, which is internal: {INTERNAL[other]}"
                     for other in file.get("dependency", []) if other in INTERNAL and name not in INTERNAL]
    return problems


def project_version(root: pathlib.Path) -> str:
    return re.search(r"^project\(\w+ VERSION (\S+)", (root / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def record(now: Api, released: Api | None) -> int:
    """Takes over what was changed on purpose, as long as nothing can get the numbers and names that were dropped."""
    if released is not None:
        for problem in breaks(released, now):
            print(f"No longer as in {released.release}: {problem}")
        problems = unreserved(released, now)
        if problems:
            print("\n".join([*problems, "Not recorded."]))
            return 1
    BASELINE.write_text(to_text(now))
    print(f"Recorded {len(now.messages)} messages, {len(now.enums)} enums and {len(now.services)} services "
          f"of version {now.release}.")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares the API's messages with what was released.")
    parser.add_argument("--protoc", default="protoc")
    parser.add_argument("--record", action="store_true", help="make the baseline anew")
    arguments = parser.parse_args()
    descriptor_set = compile_protos(ROOT / "proto", arguments.protoc)
    now = api_of(descriptor_set)
    now.release = project_version(ROOT)
    if arguments.record:
        return record(now, from_text(BASELINE.read_text()) if BASELINE.exists() else None)
    released = from_text(BASELINE.read_text())
    problems = internal_problems(descriptor_set) + breaks(released, now) + unreserved(released, now)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} breaks of release {released.release}; docs/releasing.md says what to do about one")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
