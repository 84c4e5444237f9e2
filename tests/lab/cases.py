"""What the lab moves: each case is a network and a reshard on it."""

import json
import pathlib
from dataclasses import dataclass, replace

from layouts import Mesh, Placement, Tensor, parse_rules, spelled_out
from network import Host, Nic, Rack

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATE = 200  # Mbit/s of a NIC, unless a case says otherwise
EVEN = (Nic(RATE, RATE),)
SIGNAL_LENGTH = 72  # every number of parts in the cases divides it
SINGLE_SENDER = "single"  # the group with a target of its own


@dataclass(frozen=True)
class Case:
    """`group`: its family. `title`: what it is, for people."""

    name: str
    group: str
    title: str
    hosts: tuple[Host, ...]
    tensors: tuple[Tensor, ...]
    source: Placement
    destination: Placement
    replica_axes: str = ""
    racks: tuple[Rack, ...] = ()

    def devices(self) -> list[str]:
        """The source's first, each once."""
        return list(dict.fromkeys((*self.source.mesh.devices, *self.destination.mesh.devices)))


def mesh(axes: str, hosts: str, devices: int) -> Mesh:
    """mesh("x=2,y=4", "ab", 4): eight slots on a.0-3 and b.0-3."""
    pairs = tuple((name, int(size)) for name, size in (axis.split("=") for axis in axes.split(",")))
    return Mesh(pairs, tuple(f"{host}.{device}" for host in hosts for device in range(devices)))


def hosts(names: str, nics: tuple[Nic, ...] = EVEN, **others: tuple[Nic, ...]) -> tuple[Host, ...]:
    return tuple(Host(name, others.get(name, nics)) for name in names)


def one_tensor(*shape: int) -> tuple[Tensor, ...]:
    return (Tensor("tensor", shape),)


def everywhere(layout: str) -> tuple[tuple[str, str], ...]:
    return (("*", layout),)


def single_sender() -> list[Case]:
    """One device to a mesh of hosts x devices that all need all of it: the paper's section 5.1.1."""
    cases = []
    for rows, columns in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (3, 2), (4, 2)):
        receivers = "bcde"[:rows]
        cases.append(Case(f"single_{rows}x{columns}", SINGLE_SENDER, f"one device to ({rows},{columns})",
                          hosts("a" + receivers), one_tensor(1 << 24),
                          Placement(mesh("x=1", "a", 1), everywhere("[-]")),
                          Placement(mesh(f"x={rows},y={columns}", receivers, columns), everywhere("[-]")), "x,y"))
    return cases


# The paper's section 5.1.2, at 64 to 96 MiB through the busiest NIC: shape, hosts of either side, layouts.
MANY = {
    1: ((256, 256, 512), "ab", "cd", "[x, -, -]", "[x, -, -]"),
    2: ((256, 256, 512), "ab", "cd", "[-, -, -]", "[x, -, -]"),
    3: ((256, 256, 512), "ab", "cd", "[-, x, -]", "[x, -, -]"),
    4: ((256, 256, 512), "ab", "cd", "[-, x*y, -]", "[x*y, -, -]"),
    5: ((256, 256, 512), "ab", "cd", "[y, -, -]", "[x, -, -]"),
    6: ((384, 256, 512), "ab", "cde", "[x, -, -]", "[x, -, -]"),
    7: ((128, 256, 512), "a", "cd", "[x*y, -, -]", "[-, -, -]"),
    9: ((256, 256, 512), "ab", "cd", "[-, x, -]", "[-, -, x]"),
}


def many_to_many() -> list[Case]:
    """Case 8 of the published suite is its case 7 again."""
    return [Case(f"many_{number}", "many", f"case {number}: {before} to {after}", hosts(senders + receivers),
                 one_tensor(*shape), Placement(mesh(f"x={len(senders)},y=4", senders, 4), everywhere(before)),
                 Placement(mesh(f"x={len(receivers)},y=4", receivers, 4), everywhere(after)))
            for number, (shape, senders, receivers, before, after) in MANY.items()]


def unequal() -> list[Case]:
    slow = (Nic(RATE // 4, RATE // 4),)
    fast = (Nic(2 * RATE, 2 * RATE),)
    whole = everywhere("[-]")
    pair = mesh("x=2", "ab", 1)
    # Nine slots, of which the slow host has one: its ninth takes less time there than four of them elsewhere.
    ninths = Mesh((("x", 9),), (*mesh("x=8", "bc", 4).devices, "d.0"))
    halves = (one_tensor(1 << 26), Placement(pair, everywhere("[x]")),
              Placement(mesh("x=2", "cd", 1), everywhere("[x]")))
    return [
        Case("two_nics", "nics", "halves from two hosts of two NICs to two such hosts", hosts("abcd", EVEN * 2),
             *halves),
        Case("one_of_two", "nics", "the same over the first NIC only, as the published strategies do", hosts("abcd"),
             *halves),
        Case("slow_holder", "unequal", "one of two holders at a quarter of the rate", hosts("abcd", a=slow),
             one_tensor(11 << 21), Placement(pair, whole), Placement(mesh("x=2", "cd", 1), everywhere("[x]"))),
        Case("slow_receiver", "unequal", "one of three partial receivers at a quarter of the rate",
             hosts("abcd", d=slow), one_tensor(9 << 21), Placement(mesh("x=1", "a", 1), whole),
             Placement(ninths, everywhere("[x]"))),
        Case("rack", "racks", "two racks, four receivers behind an uplink of half a NIC's rate", hosts("abcdef", fast),
             one_tensor(1 << 24), Placement(pair, everywhere("[x]")), Placement(mesh("x=4", "cdef", 1), whole), "x",
             (Rack("r0", ("a", "b"), RATE, RATE), Rack("r1", ("c", "d", "e", "f"), RATE, RATE))),
    ]


def shapes_of_meshes() -> list[Case]:
    whole = everywhere("[-]")
    return [
        Case("overlap", "overlap", "three hosts to three, of which two are the same", hosts("abcd"),
             one_tensor(12288, 4096), Placement(mesh("x=3", "abc", 1), everywhere("[x, -]")),
             Placement(mesh("x=3", "bcd", 1), everywhere("[-, x] chunk"))),
        Case("uneven", "uneven", "rows in three balanced parts to columns in four by chunks", hosts("abcdefg"),
             one_tensor(11003, 6007), Placement(mesh("x=3", "abc", 1), everywhere("[x, -] balanced")),
             Placement(mesh("x=4", "defg", 1), everywhere("[-, x] chunk"))),
        Case("striping", "striping", "two holders of everything, three receivers of a third", hosts("abcde"),
             one_tensor(33 << 20), Placement(mesh("x=2", "ab", 1), whole),
             Placement(mesh("x=3", "cde", 1), everywhere("[x]"))),
        *(Case(f"replicas_{replicas}x{parts}", "replicas",
               f"rows on 2 hosts to columns on 4 hosts x 2 devices, {replicas} replicas", hosts("abcdef"),
               one_tensor(4096, 16384 // replicas), Placement(mesh("x=2", "ab", 1), everywhere("[x, -]")),
               Placement(mesh(f"r={replicas},x={parts}", "cdef", 2), everywhere("[-, x]")), "r")
          for replicas, parts in ((4, 2), (2, 4))),
    ]


def gpt2() -> Case:
    """Larger than the others, so at twice their rate."""
    examples = ROOT / "examples"
    manifest = json.loads((examples / "gpt2.json").read_text())
    return Case("gpt2", "gpt2", "GPT-2, FSDP on 4 hosts to 2 replicas of 2-way TP on 4 others",
                hosts("abcdefgh", (Nic(2 * RATE, 2 * RATE),)),
                tuple(Tensor(entry["name"], tuple(entry["shape"]), entry["dtype"]) for entry in manifest["tensors"]),
                Placement(mesh("fsdp=4", "abcd", 1), parse_rules((examples / "gpt2.fsdp.rules").read_text())),
                Placement(mesh("replica=2,model=2", "efgh", 1), parse_rules((examples / "gpt2.tp.rules").read_text())),
                "replica")


def signal(case: Case) -> Case:
    """The same with next to no bytes: dimensions that are cut get SIGNAL_LENGTH, others 1."""
    tensor = case.tensors[0]
    rank = len(tensor.shape)
    sides = [spelled_out(side.layout(tensor.name), rank)[1:].split("]")[0].split(", ")
             for side in (case.source, case.destination)]
    shape = tuple(1 if whole == {"-"} else SIGNAL_LENGTH for whole in map(set, zip(*sides, strict=True)))
    return replace(case, name=case.name + ".signal", tensors=(replace(tensor, shape=shape),))


def all_cases() -> list[Case]:
    return [*single_sender(), *many_to_many(), *unequal(), *shapes_of_meshes(), gpt2()]
