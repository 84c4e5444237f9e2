"""A network on one machine: hosts as network namespaces, NICs as shaped virtual Ethernet pairs.

    host a: eth0, eth1      host b: eth0        tbf out of every ethN: the NIC's rate out
         |     |                 |              tbf out of the switch's end: its rate in
      bridge of a rack, or the core bridge itself
         |                                      tbf on both ends of a rack's uplink
      core bridge

All bridges are in one more namespace, the switch. Names begin with PREFIX and the process id of their maker, so several
networks live side by side, and what a killed maker left is removed by the next.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass

PREFIX = "cmlab"
NAMESPACES = pathlib.Path("/run/netns")
FOLDERS = pathlib.Path("/tmp")
NAME = re.compile(rf"{PREFIX}(\d+)(-.*)?")

# What a shaped port lets through at once: enough that it loses no time when two busy cores serve its timer late, and
# little beside what a case sends.
BURST_BYTES = 128 << 10
# What a port queues before it drops. What it queues is in the way of the acknowledgements of what its host sends: where
# it is much, a connection recovers from a loss, in steps of one segment a round trip, over many seconds, and what ran
# before on a connection says how fast it is. With 40 ms the published orders on `gpt2` took 1.07 to 1.43 times the
# bound, with 10 ms 1.02 to 1.07.
QUEUE_SECONDS = 0.01
# Where every sender has a queue of its own (`fair`): little, since requests for payload wait behind payload in it.
FAIR_QUEUE_BYTES = 48 << 10
FAIR_BURST_BYTES = 32 << 10
SOURCE_END, DESTINATION_END = 15, 19  # the last bytes of addresses in an IP header
MEGABIT = 125_000  # bytes
SETTINGS = {
    "net.ipv6.conf.all.disable_ipv6": 1,  # no traffic but ours
    # Several NICs in one subnet: each answers for its own address, and takes what comes to it.
    "net.ipv4.conf.all.arp_ignore": 1,
    "net.ipv4.conf.all.arp_announce": 2,
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    # The same on every machine, and allowed in every namespace. A window that keeps the queue of a port filled lets a
    # hop lose no time; BBR, which drains it, loses about 1 % of the bound per hop of a chain.
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_no_metrics_save": 1,  # every run starts as the first one
}


@dataclass(frozen=True)
class Nic:
    """Rates in Mbit/s."""

    out_rate: int
    in_rate: int


@dataclass(frozen=True)
class Host:
    name: str
    nics: tuple[Nic, ...]


@dataclass(frozen=True)
class Rack:
    """Rates of its uplink in Mbit/s."""

    name: str
    hosts: tuple[str, ...]
    up_rate: int
    down_rate: int


@dataclass(frozen=True)
class Counters:
    """What the kernel counted on one NIC, in bytes."""

    sent: int
    received: int

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(self.sent - other.sent, self.received - other.received)


class NetworkError(Exception):
    """A command of the system failed; its words."""


def run(command: list[str], text: str | None = None) -> str:
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def inside(namespace: str, command: list[str]) -> list[str]:
    """The command line that runs `command` in a namespace. It ends with the process that starts it."""
    return ["nsenter", f"--net={NAMESPACES / namespace}", "setpriv", "--pdeathsig", "KILL", *command]


def available() -> str | None:
    """Why no network can be made here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        with Network([Host("probe", (Nic(100, 100),))]):
            return None
    except (NetworkError, OSError) as error:
        return f"no shaped network namespace can be made: {error}"


def alive(process: int) -> bool:
    return pathlib.Path(f"/proc/{process}").exists()


def remove(prefix: str) -> None:
    """Ends what runs in the namespaces of `prefix`, and removes them and its folder."""
    names = [path.name for path in NAMESPACES.glob(prefix + "-*")]
    for name in names:
        for process in run(["ip", "netns", "pids", name]).split():
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:
                pass
    for name in names:
        run(["ip", "netns", "delete", name])
    shutil.rmtree(FOLDERS / prefix, ignore_errors=True)


def remove_stale() -> None:
    """What processes left that are no more."""
    for path in [*NAMESPACES.glob(PREFIX + "*"), *FOLDERS.glob(PREFIX + "*")]:
        match = NAME.fullmatch(path.name)
        if match and not alive(int(match[1])):
            remove(PREFIX + match[1])


def tbf(device: str, rate: int, verb: str = "add") -> str:
    limit = BURST_BYTES + int(rate * MEGABIT * QUEUE_SECONDS)
    return f"qdisc {verb} dev {device} root tbf rate {rate}mbit burst {BURST_BYTES} limit {limit}\n"


def fair_shape(device: str, rate: int, peers: int, address_end: int) -> str:
    """A queue for each peer, which take turns, as in a switch with virtual output queues. `address_end`: where in an IP
    header the last byte of the peer's address is. What is short, acknowledgements above all, goes first."""
    whole = f"ceil {rate}mbit burst {FAIR_BURST_BYTES} cburst {FAIR_BURST_BYTES}"
    lines = (f"qdisc add dev {device} root handle 1: htb default fff\n"
             f"class add dev {device} parent 1: classid 1:1 htb rate {rate}mbit {whole} quantum 60000\n"
             f"class add dev {device} parent 1:1 classid 1:fff htb rate {rate / 10}mbit {whole} prio 0 quantum 3000\n"
             f"filter add dev {device} parent 1: protocol ip prio 1 u32 match u16 0 0xff80 at 2 flowid 1:fff\n")
    for peer in range(1, peers + 1):
        lines += (f"class add dev {device} parent 1:1 classid 1:{peer + 15:x} htb rate {rate / peers / 1.2:.3f}mbit "
                  f"ceil {rate}mbit burst 1600 cburst 1600 prio 1 quantum 1600\n"
                  f"qdisc add dev {device} parent 1:{peer + 15:x} handle {peer + 15:x}: bfifo limit {FAIR_QUEUE_BYTES}\n"
                  f"filter add dev {device} parent 1: protocol ip prio 2 u32 match u8 {peer} 0xff at {address_end} "
                  f"flowid 1:{peer + 15:x}\n")
    return lines


class Network:
    """Exists while its `with` block runs; one at a time per process. `folder` is for what runs in it. `fair`: ports of
    hosts keep a queue for each peer, so that flows share them as max-min fairly as the planner says, also in exchanges
    that are too short for TCP to find its rates."""

    def __init__(self, hosts: list[Host], racks: tuple[Rack, ...] = (), fair: bool = False):
        self.hosts = {host.name: host for host in hosts}
        self.racks = racks
        self.fair = fair
        self.prefix = f"{PREFIX}{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.folder = FOLDERS / self.prefix
        self.numbers = {name: number for number, name in enumerate(self.hosts)}

    def __enter__(self) -> "Network":
        remove_stale()
        remove(self.prefix)
        try:
            self.make()
        except BaseException:
            remove(self.prefix)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.prefix)

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-host-{host}"

    def address(self, host: str, nic: int = 0) -> str:
        return f"10.99.{nic}.{self.numbers[host] + 1}"

    def port(self, host: str, nic: int) -> str:
        """The switch's end of a NIC."""
        return f"p{self.numbers[host]}.{nic}"

    def make(self) -> None:
        self.folder.mkdir()
        for namespace in (self.switch, *map(self.namespace, self.hosts)):
            run(["ip", "netns", "add", namespace])
            run(["nsenter", f"--net={NAMESPACES / namespace}", "sysctl", "-qw",
                 *(f"{key}={value}" for key, value in SETTINGS.items())])
        self.make_bridges()
        bridges = {name: f"rack{number}" for number, rack in enumerate(self.racks) for name in rack.hosts}
        for host in self.hosts.values():
            self.attach(host, bridges.get(host.name, "core"))

    def make_bridges(self) -> None:
        links = "link set lo up\nlink add core type bridge\nlink set core up\n"
        shapes = ""
        for number, rack in enumerate(self.racks):
            bridge, up, down = f"rack{number}", f"up{number}", f"down{number}"
            links += (f"link add {bridge} type bridge\nlink set {bridge} up\n"
                      f"link add {up} type veth peer name {down}\n"
                      f"link set {up} master {bridge} up\nlink set {down} master core up\n")
            shapes += tbf(up, rack.up_rate) + tbf(down, rack.down_rate)
        run(["ip", "-n", self.switch, "-batch", "-"], links)
        run(["tc", "-n", self.switch, "-batch", "-"], shapes)

    def attach(self, host: Host, bridge: str) -> None:
        namespace = self.namespace(host.name)
        outer, inner, out_shapes, in_shapes = "", "link set lo up\n", "", ""
        for number, nic in enumerate(host.nics):
            port, device = self.port(host.name, number), f"eth{number}"
            outer += (f"link add {port} type veth peer name {device} netns {namespace}\n"
                      f"link set {port} master {bridge} up\n")
            inner += f"addr add {self.address(host.name, number)}/16 dev {device}\nlink set {device} up\n"
            out_shapes += self.shape(device, nic.out_rate, DESTINATION_END)
            in_shapes += self.shape(port, nic.in_rate, SOURCE_END)
        run(["ip", "-n", self.switch, "-batch", "-"], outer)
        run(["ip", "-n", namespace, "-batch", "-"], inner)
        run(["tc", "-n", namespace, "-batch", "-"], out_shapes)
        run(["tc", "-n", self.switch, "-batch", "-"], in_shapes)

    def shape(self, device: str, rate: int, address_end: int) -> str:
        return fair_shape(device, rate, len(self.hosts), address_end) if self.fair else tbf(device, rate)

    def cut(self, host: str, nic: int = 0) -> None:
        run(["ip", "-n", self.switch, "link", "set", self.port(host, nic), "down"])

    def cut_pair(self, host: str, other: str) -> None:
        """Drops what these two send each other, through whichever NIC."""
        for one, two in ((host, other), (other, host)):
            for nic in range(len(self.hosts[two].nics)):
                run(["ip", "-n", self.namespace(one), "route", "add", "blackhole", f"{self.address(two, nic)}/32"])

    def heal_pair(self, host: str, other: str) -> None:
        for one, two in ((host, other), (other, host)):
            for nic in range(len(self.hosts[two].nics)):
                run(["ip", "-n", self.namespace(one), "route", "del", "blackhole", f"{self.address(two, nic)}/32"])

    def heal(self, host: str, nic: int = 0) -> None:
        run(["ip", "-n", self.switch, "link", "set", self.port(host, nic), "up"])

    def cut_from_switch(self, host: str, switch_address: str) -> None:
        """Drops what a host and this address of the switch send each other."""
        self.blackholes("add", host, switch_address)

    def heal_to_switch(self, host: str, switch_address: str) -> None:
        self.blackholes("del", host, switch_address)

    def blackholes(self, verb: str, host: str, switch_address: str) -> None:
        for namespace, other in ((self.namespace(host), switch_address), (self.switch, self.address(host))):
            run(["ip", "-n", namespace, "route", verb, "blackhole", f"{other}/32"])

    def set_rate(self, host: str, rate: Nic, nic: int = 0) -> None:
        """While traffic runs; what is queued stays. Not of a fair network."""
        run(["tc", "-n", self.namespace(host), "-batch", "-"], tbf(f"eth{nic}", rate.out_rate, "change"))
        run(["tc", "-n", self.switch, "-batch", "-"], tbf(self.port(host, nic), rate.in_rate, "change"))

    def counters(self) -> dict[tuple[str, int], Counters]:
        """Of every NIC, by host and number."""
        found = {}
        for host in self.hosts.values():
            links = json.loads(run(["ip", "-n", self.namespace(host.name), "-json", "-stats", "link"]))
            for link in links:
                if link["ifname"] != "lo":
                    stats = link["stats64"]
                    found[host.name, int(link["ifname"].removeprefix("eth"))] = Counters(
                        stats["tx"]["bytes"], stats["rx"]["bytes"])
        return found

    def rates(self) -> list[int]:
        """Every rate in use, in Mbit/s."""
        nics = [nic for host in self.hosts.values() for nic in host.nics]
        return sorted({rate for nic in nics for rate in (nic.out_rate, nic.in_rate)}
                      | {rate for rack in self.racks for rate in (rack.up_rate, rack.down_rate)})

    def description(self, shares: dict[int, float]) -> dict:
        """As a network file describes it. `shares`: by shaped rate, the part of it that payloads get."""

        def rate(megabits: int) -> int:
            return int(megabits * MEGABIT * shares[megabits])

        hosts = [{"name": host.name,
                  "nics": [{"name": f"eth{number}", "out_bytes_per_second": rate(nic.out_rate),
                            "in_bytes_per_second": rate(nic.in_rate)} for number, nic in enumerate(host.nics)]}
                 for host in self.hosts.values()]
        racks = [{"name": rack.name, "hosts": list(rack.hosts), "up_bytes_per_second": rate(rack.up_rate),
                  "down_bytes_per_second": rate(rack.down_rate)} for rack in self.racks]
        return {"hosts": hosts, "racks": racks} if racks else {"hosts": hosts}
