"""What a description says of a plan and its run, and what follows: layers and colours of hosts, use of ports."""

import collections
from dataclasses import dataclass

# Told apart by most people who see colours differently (after Okabe and Ito), on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f4e9c", "#8a5a2b")
OTHERS = "#9aa5b1"


@dataclass(frozen=True)
class Route:
    """Bytes of one root from NIC to NIC: the ports that they pass, and when: [begin, end) of chunks or runs of them."""

    sender: int
    receiver: int
    root: int
    ports: list[int]
    bytes: float
    latency_seconds: float
    bars: list[tuple[float, float]]


class Plan:
    def __init__(self, document: dict):
        self.document = document
        self.seconds: float = document["seconds"]
        self.bound: float = document["bound_seconds"]
        self.hosts: list[dict] = document["hosts"]
        self.ports: list[dict] = document["ports"]
        self.routes = [Route(**route) for route in document["routes"]]
        self.layers = self._in_order(self._layers())
        self.colors, self.legend = self._colors()

    def use_of(self, port: int) -> float:
        """The part of the run that a port works, if always at its full rate."""
        return self.ports[port]["bytes"] / self.ports[port]["bytes_per_second"] / (self.seconds or 1)

    def bytes_of(self, host: int) -> float:
        return sum(port["bytes"] for port in self.ports if port["host"] == host)

    def _layers(self) -> dict[int, int]:
        """Of every host that bytes leave or enter the hops from a root, the least of all roots."""
        layers: dict[int, int] = {}
        links: dict[tuple[int, int], set[int]] = collections.defaultdict(set)
        for route in self.routes:
            links[route.root, route.sender].add(route.receiver)
        reached = {(route.root, route.root) for route in self.routes}
        seen, depth = set(reached), 0
        while reached:
            layers |= {host: layers.get(host, depth) for _, host in reached}
            reached = {(root, to) for root, host in reached for to in links[root, host]} - seen
            seen |= reached
            depth += 1
        return layers

    def _in_order(self, layers: dict[int, int]) -> dict[int, int]:
        """By layer, then by rack; beside the hosts that they receive from, so that few routes cross."""
        places: dict[int, float] = {}
        for layer in range(max(layers.values(), default=-1) + 1):
            senders = collections.defaultdict(list)
            for route in self.routes:
                if layers[route.receiver] == layer and layers[route.sender] == layer - 1:
                    senders[route.receiver].append(places[route.sender])
            here = [host for host in layers if layers[host] == layer]
            here.sort(key=lambda host: (self.hosts[host]["rack"], sum(senders[host]) / (len(senders[host]) or 1), host))
            places |= {host: place / len(here) for place, host in enumerate(here)}
        return {host: layers[host] for host in places}

    def _colors(self) -> tuple[dict[int, str], list[tuple[str, str]]]:
        """By root, for those with most bytes; they go by number, so that all pictures of a cluster are alike."""
        sent: collections.Counter[int] = collections.Counter()
        for route in self.routes:
            sent[route.root] += route.bytes
        own = sorted(root for root, _ in sent.most_common(len(COLORS)))
        colors = dict.fromkeys(sent, OTHERS) | dict(zip(own, COLORS))
        others = len(sent) - len(own)
        legend = [(self.hosts[root]["name"], colors[root]) for root in own]
        return colors, legend + [(f"{others} other{'s' * (others > 1)}", OTHERS)] * (others > 0)
