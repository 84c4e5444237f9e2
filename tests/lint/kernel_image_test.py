"""Fails unless every kernel is in the image as machine code for each kind of GPU, and as it should be.

    kernel_image_test.py <cuobjdump> <kernels.fatbin> <kernel_table.h>
"""

import pathlib
import re
import subprocess
import sys

MACHINE_CODE = ("sm_90", "sm_100")
PTX = ("sm_100",)
# Arrays of a thread belong into registers; a larger stack frame means that one is in memory.
STACK_BYTES_MAX = 16
# So that four blocks of 256 threads share a multiprocessor's 65,536.
REGISTERS_MAX = 64

KERNEL = re.compile(r"KERNEL\((crossmesh_\w+), ")
FUNCTION = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)")
ARCHITECTURE = re.compile(r"^arch = (sm_\d+)$", re.MULTILINE)


def cuobjdump(program: str, image: str, *flags: str) -> str:
    return subprocess.run([program, *flags, image], check=True, capture_output=True, text=True).stdout


def architecture_problems(listing: str, kind: str, expected: tuple[str, ...]) -> list[str]:
    return [f"no {kind} for {name}" for name in expected if not re.search(rf"\.{name}\.{kind}\b", listing)]


def usage_problems(usage: str, kernels: list[str]) -> list[str]:
    # Text, name, text, name, text. PTX comes under a name as well, without functions.
    parts = ARCHITECTURE.split(usage)
    functions: dict[str, str] = {}
    for architecture, text in zip(parts[1::2], parts[2::2]):
        functions[architecture] = functions.get(architecture, "") + text
    problems = []
    for architecture in MACHINE_CODE:
        found = {name: (int(registers), int(stack))
                 for name, registers, stack in FUNCTION.findall(functions.get(architecture, ""))}
        for kernel in kernels:
            if kernel not in found:
                problems.append(f"{architecture} has no {kernel}")
                continue
            registers, stack = found[kernel]
            if registers > REGISTERS_MAX or stack > STACK_BYTES_MAX:
                problems.append(f"{architecture} {kernel}: {registers} registers and {stack} bytes of stack; "
                                f"expected at most {REGISTERS_MAX} and {STACK_BYTES_MAX}")
        problems += [f"{architecture} has {name}, which the table has not" for name in found.keys() - set(kernels)]
    return problems


def main() -> int:
    program, image, table = sys.argv[1:]
    kernels = KERNEL.findall(pathlib.Path(table).read_text())
    problems = [] if kernels else [f"no kernels in {table}"]
    problems += architecture_problems(cuobjdump(program, image, "-lelf"), "cubin", MACHINE_CODE)
    problems += architecture_problems(cuobjdump(program, image, "-lptx"), "ptx", PTX)
    problems += usage_problems(cuobjdump(program, image, "-res-usage"), kernels)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {len(kernels)} kernels for {', '.join(MACHINE_CODE)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
