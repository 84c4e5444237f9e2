"""The documentation site: the pages of this repository as they lie, and a reference of the Python package's docstrings.

scripts/site builds it. Pages are named in toc.yml; a link or an anchor that leads nowhere is a warning, which ends it.
"""

import importlib
import importlib.util
import inspect
import pathlib
import sys
import types

project = "Crossmesh"
html_title = "Crossmesh"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_extra_path = ["index.html"]  # leads from the folder to the first page
html_show_copyright = False
html_copy_source = False

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_external_toc"]
external_toc_path = "docs/site/toc.yml"
include_patterns = ["*.md", "docs/**", "examples/**/README.md", "tests/README.md", "tests/standin/README.md"]
exclude_patterns = [".*", "build", "docs/site"]

myst_heading_anchors = 6
nb_execution_mode = "off"  # notebooks have what they show, and a test compares it
highlight_language = "none"  # code that says nothing of its language is mostly of a shell
default_role = "code"

autoclass_content = "both"
autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_type_aliases = {"Document": "Document", "Side": "Side", "SideLike": "SideLike", "Step": "Step"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True


def use_stub(extension):
    """In an extension's place, since its functions have no signature that autodoc reads: the stub has."""
    package = pathlib.Path(importlib.util.find_spec("crossmesh").origin).parent
    stub = package / f"{extension}.pyi"
    module = types.ModuleType(f"crossmesh.{extension}")
    # Names of classes come before the classes, and the stubs of aliases are strings already.
    exec(compile("from __future__ import annotations\n" + stub.read_text(), stub, "exec"), vars(module))
    sys.modules[module.__name__] = module


for extension in ("_core", "_worker"):
    use_stub(extension)


def leave_out_signature(app, what, name, found, options, signature, returns):
    """Of classes that something else makes, which say nothing at __init__; what fields they have is said by each."""
    if what not in ("class", "exception"):
        return None
    return None if getattr(vars(found).get("__init__"), "__doc__", None) else ("", None)


def take_docstring_of_client(app, what, name, found, options, lines):
    """crossmesh.aio says what differs; all else is said at its namesakes."""
    if not name.startswith("crossmesh.aio.") or any(lines):
        return
    namesake = importlib.import_module("crossmesh.client")
    for part in name.split(".")[2:]:
        namesake = getattr(namesake, part, None)
    lines[:] = (inspect.getdoc(namesake) or "").splitlines()


def setup(app):
    app.connect("autodoc-process-signature", leave_out_signature)
    app.connect("autodoc-process-docstring", take_docstring_of_client)
