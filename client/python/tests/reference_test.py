"""The docstrings of all public names say what the reference needs: effect, arguments, units, errors."""

import ast
import builtins
import pathlib
import re
from dataclasses import dataclass, field

import pytest

import crossmesh
from crossmesh import errors

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "crossmesh"
STUBS = pathlib.Path(crossmesh.__file__).parent
# Of a time, an amount, or a ratio.
UNIT = re.compile(r"second|byte|_ns\b|\bratio\b|\btimes\b|\bgap\b|\bprice\b|above 0 to 1|%")
# Where code is, and what is no text besides: reStructuredText would take it for a mark-up.
CODE = re.compile(r"`[^`]+`|::\n\n(?:(?: {4}.*)?\n)+", re.MULTILINE)
MARK = re.compile(r"[*`|]|\w_(?!\w)")
ERROR = re.compile(r"\b[A-Z]\w*Error\b")


@dataclass
class Item:
    """A class, a function or a method, with what is said of it around: first by what it replaces, then by its class and
    its module."""

    path: str
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    around: list[str] = field(default_factory=list)

    @property
    def own(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def told(self) -> str:
        return "\n".join([self.own, *self.around])

    def is_property(self) -> bool:
        return any(getattr(one, "id", "") == "property" for one in self.node.decorator_list)

    def parameters(self) -> list[ast.arg]:
        if isinstance(self.node, ast.ClassDef):
            return []
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return [one for one in named if one.arg not in ("self", "cls")]


def modules() -> dict[str, ast.Module]:
    """By name, those of the package and the stubs of its extensions."""
    paths = [*SOURCES.glob("*.py"), *STUBS.glob("*.pyi")]
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths)}


MODULES = modules()
DEFINED = {
    (name, node.name): node
    for name, module in MODULES.items() for node in module.body
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
}
CLASSES = {node.name: node for (module, _), node in DEFINED.items()
           if isinstance(node, ast.ClassDef) and module not in ("aio", "_core", "_worker")}


def exported_by(module: str, default: str) -> list[str]:
    """What a module's __all__ names; `default` of one that has none."""
    for node in MODULES[module].body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return [default]


def public_names() -> list[tuple[str, str]]:
    """Module and name of what public modules define, or have from a module that is not public."""
    names = [
        (module, name) for module, name in DEFINED
        if not module.startswith("_") and not name.startswith("_") and name in exported_by(module, name)]
    names += [(module, name) for name, module in crossmesh._DEFINED_IN.items() if module == "_core"]
    for module, tree in MODULES.items():
        if module.startswith("_"):
            continue
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crossmesh._"):
                source = (node.module or "").removeprefix("crossmesh.")
                names += [(source, one.name) for one in node.names
                          if one.name in exported_by(module, one.asname or "") and (source, one.name) in DEFINED]
    return list(dict.fromkeys(names))


def members(module: str, item: Item) -> list[Item]:
    told = [item.told]
    found = [node for node in item.node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    told += [ast.get_docstring(node) or "" for node in found if node.name == "__init__"]
    result = []
    for node in found:
        if not node.name.startswith("_") or (node.name == "__init__" and ast.get_docstring(node)):
            result.append(Item(f"{item.path}.{node.name}", node, [inherited(module, item.node, node.name), *told]))
    return result


def inherited(module: str, of: ast.ClassDef, method: str) -> str:
    """The docstring of the method that is replaced; of crossmesh.aio, of its namesake in crossmesh.client."""
    bases = [ast.unparse(base).rpartition(".")[2] for base in of.bases] if module != "aio" else [of.name]
    for base in bases:
        node = CLASSES.get(base)
        for one in node.body if node else []:
            if getattr(one, "name", "") == method:
                return ast.get_docstring(one) or inherited("", node, method)
    return ""


def items() -> list[Item]:
    result = []
    for module, name in public_names():
        namesake = DEFINED.get(("client", name)) if module == "aio" else None
        around = [ast.get_docstring(one) or "" if one else "" for one in (namesake, MODULES[module], MODULES["client"])]
        item = Item(f"{module}.{name}", DEFINED[module, name], around)
        result.append(item)
        if isinstance(item.node, ast.ClassDef):
            result += members(module, item)
    return result


ITEMS = items()


def report(problems: list[str]) -> None:
    if problems:
        pytest.fail(f"{len(problems)} problems:\n" + "\n".join(problems))


def test_there_is_something_to_look_at():
    paths = {item.path for item in ITEMS}
    assert {"planning.plan", "_core.Mesh.coordinates", "memory.Storage.fill", "_requests.ReshardOptions",
            "_redistribution.redistribute", "aio.Client.reshard", "embedded.Worker.lend"} <= paths


def test_every_public_name_has_a_docstring():
    report([item.path for item in ITEMS if not item.own and not (item.around and item.around[0])])


def test_every_parameter_is_spoken_of():
    report([f"{item.path}: {one.arg}" for item in ITEMS for one in item.parameters()
            if not re.search(rf"\b{one.arg}\b", item.told)])


def test_every_option_is_spoken_of():
    """What users construct: the fields of options, as parameters."""
    report([f"{item.path}: {ast.unparse(one.target)}" for item in ITEMS
            if item.path.startswith("_requests.") and isinstance(item.node, ast.ClassDef)
            for one in item.node.body if isinstance(one, ast.AnnAssign)
            if f"`{ast.unparse(one.target)}`" not in item.own])


def test_every_number_has_a_unit():
    """What is a float, said at its name, at the function or class, or for all of a module."""
    problems = []
    for item in ITEMS:
        numbers = [one.arg for one in item.parameters() if one.annotation and "float" in ast.unparse(one.annotation)]
        if isinstance(item.node, ast.ClassDef):
            numbers += [ast.unparse(one.target) for one in item.node.body
                        if isinstance(one, ast.AnnAssign) and "float" in ast.unparse(one.annotation)]
        elif item.is_property() and item.node.returns and "float" in ast.unparse(item.node.returns):
            numbers.append(item.node.name)
        problems += [f"{item.path}: {name}" for name in numbers if not UNIT.search(f"{name} {item.told}")]
    report(problems)


def test_every_error_that_a_function_raises_is_named():
    problems = []
    for item in ITEMS:
        if isinstance(item.node, ast.ClassDef):
            continue
        for node in ast.walk(item.node):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                kind = ast.unparse(node.exc.func)
                if ERROR.fullmatch(kind) and kind not in item.told:
                    problems.append(f"{item.path}: {kind}")
    report(problems)


def test_every_error_that_is_named_is_one():
    report([f"{item.path}: {kind}" for item in ITEMS for kind in ERROR.findall(item.own)
            if not hasattr(errors, kind) and not hasattr(builtins, kind)])


def test_docstrings_have_no_mark_up_but_code():
    texts = {item.path: item.own for item in ITEMS}
    texts |= {name: ast.get_docstring(tree) or "" for name, tree in MODULES.items() if not name.startswith("_")}
    marks = {path: MARK.findall(CODE.sub("", text + "\n")) for path, text in texts.items()}
    report([f"{path}: {found}" for path, found in marks.items() if found])
