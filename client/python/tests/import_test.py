"""What importing the package costs, and what it leaves alone."""

import subprocess
import sys


def test_import_brings_in_no_framework_and_no_extension():
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, crossmesh; print(*sys.modules)"],
        check=True, capture_output=True, text=True).stdout.split()
    assert not {"numpy", "grpc", "torch", "jax", "crossmesh._core"} & set(loaded)


def test_an_unknown_name_is_an_attribute_error():
    import crossmesh

    try:
        crossmesh.no_such_name
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("expected an AttributeError")
