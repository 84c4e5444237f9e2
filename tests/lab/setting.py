"""What a run of the lab is one of: how often, between which devices, without which cases."""

from dataclasses import dataclass

from cases import Case
from gpus import Gpus
from measure import CaseResult


def without_paths(library: str) -> str:
    """"NCCL 2.30.7, /usr/lib/libnccl.so.2, NAME" to "NCCL 2.30.7, NAME"."""
    return ", ".join(part for part in library.split(", ") if not part.startswith("/"))


@dataclass(frozen=True)
class Setting:
    """`gpus`: None where tensors move between host memory. `left_out`: cases that need more GPUs than there are."""

    command: str
    rounds: int
    gpus: Gpus | None = None
    left_out: tuple[Case, ...] = ()

    def is_timed(self) -> bool:
        """Whether times and the counters of NICs mean something."""
        return not (self.gpus and self.gpus.are_stand_ins)

    def name(self) -> str:
        """Of the files that are written: those of host memory and GPUs never replace each other."""
        return "lab-gpu" if self.gpus else "lab"

    def title(self) -> str:
        if self.gpus is None:
            return "The network lab"
        return "The network lab between GPUs" if self.is_timed() else "The network lab between stand-ins for GPUs"

    def devices_text(self, results: list[CaseResult]) -> str:
        """What tensors move between, and by what."""
        if self.gpus is None:
            return "Devices: host memory."
        libraries = "; ".join(dict.fromkeys(without_paths(name) for result in results for name in result.nccl))
        settings = f", with `{self.gpus.settings_text()}`" if self.is_timed() else ""
        return f"Devices: {self.gpus.title()}. By {libraries}{settings}.{self.left_out_text()}"

    def left_out_text(self) -> str:
        """Empty unless a case is."""
        needs = ", ".join(f"{case.name} ({len(case.devices())})" for case in self.left_out)
        return f" Left out, with the GPUs that they need: {needs}." if needs else ""
