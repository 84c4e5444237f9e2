"""Changes of layout inside one mesh that the lab measures, and the ways that each of them can go."""

from dataclasses import dataclass

from cases import Case, everywhere, hosts, mesh, one_tensor
from layouts import Placement
from network import Nic

# Mbit/s of every NIC, so that two cores have little to do beside; less where a host has four devices, which move and
# add several times what passes its NIC.
RATE = 100
RATE_OF_FOUR = 50
MEBI = 1 << 20
FLOATS = MEBI // 4  # in a MiB
COLLECTIVES_MEBI = 64


@dataclass(frozen=True)
class Choice:
    """How a plan is found, as flags of the command line say it. `sums`: whether there are plans with sums."""

    name: str
    flags: tuple[str, ...]
    sums: bool = True

    def all_flags(self) -> list[str]:
        return [*self.flags] if "--strategy" in self.flags else ["--strategy", "redistribute", *self.flags]


TIME = Choice("time", ("--objective", "time"))
CHOICES = (
    TIME,
    Choice("bytes", ("--objective", "bytes")),
    Choice("time, no relay", ("--objective", "time", "--no-relay")),
    Choice("bytes, no relay", ("--objective", "bytes", "--no-relay")),
    *(Choice(method, ("--method", method))
      for method in ("replicate_then_slice", "dtensor_greedy", "one_axis", "normal_form")),
    Choice("relay", ("--strategy", "relay"), sums=False),
)


@dataclass(frozen=True)
class RedistributionCase:
    """`moved`: what is moved, as every case of the lab. `partial`: axes over which devices hold summands.
    `least_bytes`: what must pass the busiest NIC in one direction, whatever the plan; 0: not known. `raw_bytes`: from
    each host to each other one, in so many exchanges of all with all (`raw_times`). `timed`: there are bytes enough to
    say something of times. `fair`: ports keep a queue for each peer, not one for all.
    """

    moved: Case
    partial: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = CHOICES
    least_bytes: int = 0
    raw_bytes: int = 0
    raw_times: int = 1
    timed: bool = True
    fair: bool = False

    @property
    def rate(self) -> int:
        return self.moved.hosts[0].nics[0].out_rate

    @property
    def name(self) -> str:
        return self.moved.name

    def flags(self, choice: Choice) -> list[str]:
        partial = ["--source-partial", ",".join(self.partial)] if self.partial else []
        return [*choice.all_flags(), *partial]


PAIRS, COLLECTIVES = "pairs", "collectives"  # groups


def inside(group: str, name: str, title: str, axes: str, names: str, sides: tuple[str, str],
           shape: tuple[int, ...]) -> Case:
    """On hosts with these names, each with as many devices as fill the mesh."""
    devices = 1
    for axis in axes.split(","):
        devices *= int(axis.split("=")[1])
    where = mesh(axes, names, devices // len(names))
    rate = RATE if devices == len(names) else RATE_OF_FOUR
    source, destination = (Placement(where, everywhere(side)) for side in sides)
    return Case(name, group, title, hosts(names, (Nic(rate, rate),)), one_tensor(*shape), source, destination)


def two_levels() -> list[RedistributionCase]:
    """The cases hi-01 to hi-07 of the project's vectors: two hosts of four devices. In theirs an element has 1 MiB, so
    here rows of as many floats stand for one, or of a part of it where it would take too long."""
    axes = "node=2,gpu=4"

    def case(number: int, title: str, sides: tuple[str, str], shape: tuple[int, ...], *, row: int = FLOATS,
             **others) -> RedistributionCase:
        return RedistributionCase(inside(PAIRS, f"hi_{number:02}", title, axes, "ab", sides, (*shape, row)), **others)

    return [
        case(1, "gather over node and gpu, node major", ("[node*gpu, -, -]", "[-, -, -]"), (16, 4),
             row=FLOATS // 2),
        case(2, "gather over node and gpu, node minor", ("[gpu*node, -, -]", "[-, -, -]"), (16, 4),
             row=FLOATS // 2),
        case(3, "the first one with elements of 4 bytes", ("[node*gpu, -, -]", "[-, -, -]"), (16, 4), row=1,
             timed=False),
        case(4, "node and gpu change places", ("[node, gpu, -]", "[gpu, node, -]"), (16, 16), row=FLOATS // 4),
        case(5, "sums over both become whole", ("[-, -, -]", "[-, -, -]"), (16, 8), row=FLOATS // 8,
             partial=("node", "gpu")),
        case(6, "all-to-all over both", ("[node*gpu, -, -]", "[-, node*gpu, -]"), (16, 16), row=FLOATS // 4),
        case(7, "gpu to other dimension, node gathered", ("[node, gpu, -]", "[gpu, -, -]"), (16, 16),
             row=FLOATS // 8),
    ]


def collective(kind: str, names: str, fair: bool = False) -> RedistributionCase:
    """Over hosts of one device each; the larger array of a device has COLLECTIVES_MEBI."""
    count = len(names)
    ports = ("_fair", ", ports with a queue for each peer") if fair else ("", "")
    whole, cut = "[-, -]", "[x, -]"
    sides = {"all_gather": (cut, whole), "reduce_scatter": (whole, cut), "all_reduce": (whole, whole),
             "all_to_all": (cut, "[-, x]")}[kind]
    rows = 2048 * (count if kind == "all_to_all" else 1)
    times = 2 if kind == "all_reduce" else 1
    return RedistributionCase(
        inside(COLLECTIVES, f"{kind}_{count}{ports[0]}", f"{kind} over {count} hosts{ports[1]}", f"x={count}", names,
               sides, (rows, COLLECTIVES_MEBI * FLOATS // 2048)),
        partial=("x",) if "reduce" in kind else (), choices=(TIME,),
        least_bytes=times * COLLECTIVES_MEBI * MEBI * (count - 1) // count,
        raw_bytes=COLLECTIVES_MEBI * MEBI // count, raw_times=times, fair=fair)


def two_level_collective(kind: str) -> RedistributionCase:
    """Over two hosts of four devices, by which each byte crosses between hosts once, and in an all-reduce each sum."""
    whole, cut = "[-, -]", "[node*gpu, -]"
    sides = {"all_gather": (cut, whole), "reduce_scatter": (whole, cut), "all_reduce": (whole, whole)}[kind]
    times = 2 if kind == "all_reduce" else 1
    return RedistributionCase(
        inside(COLLECTIVES, f"{kind}_2x4", f"{kind} over two hosts of four devices, in two levels", "node=2,gpu=4",
               "ab", sides, (2048, COLLECTIVES_MEBI * FLOATS // 2048)),
        partial=("node", "gpu") if "reduce" in kind else (), choices=(TIME,),
        least_bytes=times * COLLECTIVES_MEBI * MEBI // 2)


def collectives() -> list[RedistributionCase]:
    kinds = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
    return [*(collective(kind, names) for kind in kinds for names in ("ab", "abcd", "abcdefgh")),
            # What several peers send at once meets at a port; gathers go round a ring.
            *(collective(kind, names, fair=True) for kind in kinds[1:] for names in ("abcd", "abcdefgh")),
            *(two_level_collective(kind) for kind in kinds[:3])]


def all_redistributions() -> list[RedistributionCase]:
    return [*two_levels(), *collectives()]
