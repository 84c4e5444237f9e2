"""Manifests of safetensors files, read from their headers: no tensor is loaded."""

from __future__ import annotations

import os
import pathlib

from crossmesh import _arguments
from crossmesh._core import Manifest
from crossmesh.errors import NotFoundError


@_arguments.checked
def manifest(source: str | os.PathLike[str]) -> Manifest:
    """The manifest of the file `source`: a manifest file (JSON), a safetensors file, or a folder of these, with or
    without an index.

    Raises NotFoundError where there is no such file, and InvalidArgumentError for a name that is there twice, an index
    that lists other tensors than its files have or names files outside of the folder, and types that Crossmesh does not
    move.
    """
    path = pathlib.Path(source)
    if path.is_dir() or path.suffix == ".safetensors":
        return Manifest.of_safetensors(str(path))
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFoundError(
            f"manifest {path}: expected a file, found {error.strerror}", f"manifest {path}", "a file",
            str(error.strerror)) from error
