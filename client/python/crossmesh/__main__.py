"""`python -m crossmesh ARGUMENTS`: the command line."""

from crossmesh.programs import run_crossmesh

run_crossmesh()
