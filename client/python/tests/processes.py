"""Scripts that tests run in a process of their own."""

import subprocess
import sys
import textwrap


def output_of(prelude, script, *words):
    """What both print, in a process in which everything warns, and which ends well and quietly."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", prelude + textwrap.dedent(script), *words], capture_output=True, text=True,
        timeout=100)
    assert (done.stderr, done.returncode) == ("", 0), f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
