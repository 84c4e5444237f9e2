"""What the files of deploy/ say, and the programs that they start."""

import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any, Iterator

import yaml

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "container/Containerfile"

# A last flag that a program refuses, when it has read all others, before it does anything.
REFUSED = {
    "crossmesh-controller": ["--topology", "/nonexistent/network.json"],
    "crossmesh-worker": ["--gpu", "nonsense"],
}
USAGE = 64


def refusal(command: list[str]) -> str:
    """What is wrong with a daemon's command line; empty when the daemon understands all of it."""
    program, *arguments = command
    if program not in REFUSED:
        return f"expected one of {', '.join(REFUSED)}, found {program}"
    last = REFUSED[program]
    result = subprocess.run([BUILD / "bin" / program, *arguments, *last], capture_output=True, text=True, check=False,
                            timeout=30)
    if result.returncode == USAGE and last[-1] in result.stderr:
        return ""
    return f"{shlex.join(command)}: exit status {result.returncode}, {result.stderr.strip()}"


def flag(command: list[str], name: str) -> str | None:
    """The value of a flag, given as `--name value` or as `--name=value`."""
    for argument, following in zip(command, [*command[1:], ""]):
        if argument == name:
            return following
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def is_loopback(address: str) -> bool:
    return address.startswith(("127.", "[::1]", "unix:"))


def exposed_without_consent(command: list[str]) -> list[str]:
    """Addresses that other machines reach, of a daemon that is not told to allow them."""
    if "--insecure" in command:
        return []
    addresses = [flag(command, name) for name in ("--listen", "--metrics-listen", "--controller")]
    return [address for address in addresses if address and not is_loopback(address)]


def project_version() -> str:
    result = subprocess.run([BUILD / "bin/crossmesh", "--version"], capture_output=True, text=True, check=True)
    return result.stdout.split()[1]


def load_yaml(path: pathlib.Path) -> Any:
    """The only document of a file."""
    return yaml.safe_load(path.read_text())


def settings(path: pathlib.Path) -> dict[str, list[str]]:
    """The settings of a unit, sections aside: the values of each in their order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def environment(text: str) -> dict[str, str]:
    """Of the lines NAME="value" of an environment file, or of Environment=."""
    return dict(word.split("=", 1) for word in shlex.split(text.replace("\\\n", ""), comments=True))


def own_environment(unit: dict[str, list[str]], specifiers: dict[str, str]) -> dict[str, str]:
    """What the unit itself sets."""
    text = " ".join(unit.get("Environment", []))
    for specifier, value in specifiers.items():
        text = text.replace(specifier, value)
    return environment(text)


def started(unit: dict[str, list[str]], variables: dict[str, str], specifiers: dict[str, str]) -> list[str]:
    """The words of ExecStart= as systemd would make them: $NAME is split, ${NAME} is one word or a part of one."""
    words = []
    for word in shlex.split(unit["ExecStart"][0]):
        for specifier, value in specifiers.items():
            word = word.replace(specifier, value)
        if re.fullmatch(r"\$\w+", word):
            words += variables[word[1:]].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], word))
    return words


def stages() -> dict[str, dict[str, list[str]]]:
    """The stages of the Containerfile by their names: for each instruction what follows it, in order."""
    found: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] = {}
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            current = found.setdefault(rest.split(" AS ")[1], {})
        current.setdefault(instruction, []).append(rest.strip())
    return found


def containers_of(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource["spec"]["template"]["spec"]["containers"]
