"""Fails when clang-format would change a source file.

    format_test.py <repository root> <clang-format>
"""

import pathlib
import subprocess
import sys

import source_tree


def main() -> int:
    root, clang_format = pathlib.Path(sys.argv[1]), sys.argv[2]
    paths = list(source_tree.source_files(root))
    result = subprocess.run([clang_format, "--dry-run", "-Werror", *paths], cwd=root, check=False)
    if result.returncode != 0:
        print(f"Run: {clang_format} -i <the files above>")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
