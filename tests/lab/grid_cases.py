"""Steps of trainings on grids that the lab rehearses: what is cut how, on which hosts."""

from dataclasses import dataclass, field

from network import Host, Nic

EIGHT = "abcdefgh"
RATE = 100  # Mbit/s of a NIC
FLOPS = 15e9  # of a device: what is computed is about what is communicated
BYTES = 2  # of an element
OVERLAPS = "oar,ors,oag,backward_gathers"
RATIOS = (0.5, 1.0)  # communication over computation


@dataclass(frozen=True)
class Model:
    """Sizes of a GPT. Its vocabulary is small: what counts here is blocks; 0: it has neither embedding nor logits."""

    layers: int = 1
    hidden: int = 1024
    batch: int = 16
    sequence: int = 256
    vocabulary: int = 64

    def flags(self) -> list[str]:
        sizes = {"layers": self.layers, "hidden": self.hidden, "heads": 8, "vocabulary": self.vocabulary,
                 "batch": self.batch, "sequence": self.sequence}
        return [word for name, size in sizes.items() for word in (f"--{name}", str(size))]


@dataclass(frozen=True)
class GridCase:
    """A step on eight hosts of one device each. `flags`: of the command line. `microbatch`: sequences on a device."""

    name: str
    grid: str
    microbatch: int
    flags: tuple[str, ...] = ()
    overlaps: str = OVERLAPS
    model: Model = Model()
    flops: float = FLOPS

    def has_stages(self) -> bool:
        return "pipeline" in self.grid

    def request(self) -> list[str]:
        return [self.grid, *self.model.flags(), "--microbatch", str(self.microbatch), "--flops", str(self.flops),
                "--overlaps", self.overlaps, *self.flags]

    def tune_request(self) -> list[str]:
        return [*self.request(), *(["--with-pipeline"] if self.has_stages() else [])]


SCATTERED = ("--activations", "scattered", "--keep-gathered")
KEPT = (*SCATTERED, "--cached-layers", "1")  # gathered weights too: section "kept" of the cube's equations
CUBE = "c=2,r=2,z=2"


def settings() -> list[GridCase]:
    """Various axes, forms, overlaps and stages."""
    two = Model(layers=2, batch=8)
    return [
        GridCase("r", "r=8", 16),
        GridCase("z", "z=8", 2),
        GridCase("r_z", "r=2,z=4", 4),
        GridCase("c_r_z", CUBE, 8),
        GridCase("c_r_z_off", CUBE, 8, overlaps="none"),
        GridCase("cube", CUBE, 8, SCATTERED),
        GridCase("r_split", "r=4,z=2", 8, overlaps=OVERLAPS + ",split_batch"),
        GridCase("z_data", "z=4,data=2", 2),
        GridCase("stages_r_z", "r=2,z=2,pipeline=2", 1, model=two),
        GridCase("stages_eager", "r=2,pipeline=2,data=2", 1, ("--schedule", "eager_1f1b"), model=two),
    ]


def families() -> list[GridCase]:
    """1-D, 2-D and the cube: everything synchronous, weights and inputs kept once they are gathered."""
    return [GridCase("1-D", "r=8", 16, KEPT, "none"), GridCase("2-D", "c=2,r=4", 16, KEPT, "none"),
            GridCase("3-D", CUBE, 8, KEPT, "none")]


def derived_bytes(case: GridCase) -> float:
    """That a device sends in a step of a kept form, by the sheet's own equations of blocks: activations of each matrix,
    k x n, forward and back, and weights gathered once and scattered once. Transposed matrices have c and r swapped."""
    sizes = {"c": 1, "r": 1, "z": 1} | {axis: int(size) for axis, size in (part.split("=") for part in case.grid.split(","))}
    c, r, z = sizes["c"], sizes["r"], sizes["z"]
    m, h = case.model.batch * case.model.sequence, case.model.hidden
    elements = 0
    for k, n, is_transposed in ((h, 3 * h, False), (h, h, True), (h, 4 * h, False), (4 * h, h, True)):
        inner, outer = (r, c) if is_transposed else (c, r)
        elements += 2 * m * ((inner - 1) * n + (outer - 1) * k) + 2 * (z - 1) * k * n
    return case.model.layers * elements * BYTES / (c * r * z)


def overlapped(flops: dict[tuple[str, float], float]) -> list[tuple[GridCase, GridCase]]:
    """Pairs without and with overlaps. `flops`: by grid and ratio of communication to computation."""
    microbatches = {CUBE: 8, "r=2,z=4": 4}
    return [tuple(GridCase(f"{grid} at {ratio}, {'on' if overlaps != 'none' else 'off'}", grid, microbatches[grid],
                           overlaps=overlaps, flops=value) for overlaps in ("none", OVERLAPS))
            for (grid, ratio), value in flops.items()]


@dataclass(frozen=True)
class TuneCase:
    """All grids of a cluster. `rates`: of hosts' NICs in Mbit/s."""

    name: str
    title: str
    rates: tuple[int, ...]
    devices: int = 1  # of a host
    model: Model = field(default_factory=lambda: Model(hidden=512, batch=8, sequence=512))
    flags: tuple[str, ...] = ()
    flops: float = FLOPS

    def hosts(self) -> list[Host]:
        return [Host(name, (Nic(rate, rate),)) for name, rate in zip(EIGHT, self.rates)]

    def device_names(self) -> str:
        return ",".join(f"{host.name}.{number}" for host in self.hosts() for number in range(self.devices))

    def request(self) -> list[str]:
        return [*self.model.flags(), "--flops", str(self.flops), *self.flags, "--top", "100"]


def tunes() -> list[TuneCase]:
    few = Model(hidden=768, batch=8, sequence=128)
    many = Model(hidden=256, batch=16, sequence=512)
    return [
        TuneCase("flat", "four hosts", (100,) * 4),
        TuneCase("flat_few", "four hosts, few tokens", (100,) * 4, model=few),
        TuneCase("flat_many", "four hosts, many tokens", (100,) * 4, model=many),
        TuneCase("flat_scattered", "four hosts, scattered activations", (100,) * 4, flags=SCATTERED),
        TuneCase("two_level", "two hosts of two devices", (100,) * 2, devices=2),
        TuneCase("two_level_few", "two hosts of two devices, few tokens", (100,) * 2, devices=2, model=few),
        TuneCase("slow_host", "four hosts, one of half the rate", (100, 100, 100, 50)),
        TuneCase("slow_host_few", "four hosts, one of a quarter of the rate, few tokens", (200, 200, 200, 50), model=few),
        TuneCase("unequal", "four hosts of unequal rates", (100, 80, 60, 40)),
        TuneCase("unequal_first", "four hosts of unequal rates, the slow ones first, many tokens", (40, 50, 80, 100),
                 model=many),
    ]
