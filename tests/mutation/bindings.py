"""Clang's Python bindings, which Debian installs for its own Python only."""

import sys
from types import ModuleType

from failure import Failure

PACKAGE = "python3-clang-19"
DEBIAN = "/usr/lib/python3/dist-packages"


class Missing(Failure):
    """The bindings, or the library that they load, are not there. Says which package has them."""


def clang() -> ModuleType:
    """Module clang.cindex, with its library loaded. Raises Missing."""
    sys.path.append(DEBIAN)
    try:
        import clang.cindex as cindex
    except ImportError as error:
        raise Missing(f"{error}; install the package {PACKAGE}") from error
    finally:
        sys.path.remove(DEBIAN)
    try:
        cindex.Index.create()
    except cindex.LibclangError as error:
        raise Missing(f"{error}; install the package {PACKAGE}") from error
    return cindex
