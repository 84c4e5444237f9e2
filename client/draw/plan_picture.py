"""A plan with its run: above, hosts and routes; below, what passes each port over time, and what decides the time."""

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from network import Network
from plan import Plan, Route
from sheet import (HEAD, INK, MARGIN, MUTED, ROW, SMALL, TEXT, add_axes, add_legend, bytes_text, draw_boxes, draw_lines,
                   fitted, legend_height, new_figure, seconds_text, show_time, width_of, write)

WIDTH, TITLE, AXIS, NOTE = 1000, 46, 48, 16
USES = 106  # to the right of the plot
ROWS_MAX, PIXELS, BINS = 128, 800, 200
PITCHES = ((32, 20, TEXT), (64, 13, 8.5), (ROWS_MAX, 10, 7))  # of at most so many rows, and the size of their labels
CHUNK_PIXELS = 5  # of the shortest chunks that are told apart
# Beyond so many spans of the critical chain, the lines from one to the next would hide the rest.
LINKED_MAX = 80
BOUND, DASHES = "#c0392b", (0, (4, 2))
DIRECTIONS = ("in", "out", "up", "down")


class Timeline:
    """A row for each port that carries something; the busiest ones where there are many."""

    def __init__(self, plan: Plan):
        self.plan = plan
        used = [port for port in self._in_order() if plan.ports[port]["bytes"] > 0]
        kept = set(sorted(used, key=plan.use_of, reverse=True)[:ROWS_MAX])
        self.left_out = len(used) - len(kept)
        _, self.pitch, self.size = next(pitch for pitch in PITCHES if len(kept) <= pitch[0])
        self.tops = {port: index * self.pitch for index, port in enumerate(port for port in used if port in kept)}
        self.height = len(self.tops) * self.pitch
        self.whole = max(plan.seconds, plan.bound) or 1
        self.labels = [f"{fitted(plan.ports[port]['name'], 180, self.size)} {plan.ports[port]['direction']}"
                       for port in self.tops]
        self.label_width = max((width_of(label, self.size) for label in self.labels), default=0) + 12

    def _in_order(self) -> list[int]:
        """Hosts as they are drawn, in before out; then racks."""
        order = {host: index for index, host in enumerate(self.plan.layers)}

        def place(number: int) -> tuple[int, str, int]:
            port = self.plan.ports[number]
            return order.get(port["host"], len(order)), port["name"], DIRECTIONS.index(port["direction"])

        return sorted(range(len(self.plan.ports)), key=place)

    def draw(self, axes: Axes) -> None:
        show_time(axes)
        axes.set_yticks([self._middle(port) for port in self.tops], self.labels)
        axes.tick_params(axis="y", labelsize=self.size)
        draw_boxes(axes, [(0, top, self.whole, 0.8 * self.pitch) for top in self.tops.values()], ROW)
        for port in self.tops:
            self._draw_row(axes, port)
            use = 100 * self.plan.use_of(port)
            text = f"{use:.{int(use < 9.5)}f} % of {bytes_text(self.plan.ports[port]['bytes_per_second'])}/s"
            write(axes, (1.012, self._middle(port)), text, in_plot=False, size=min(SMALL, self.size), color=MUTED)
        self._draw_chain(axes)
        for seconds, color, style in ((self.plan.bound, BOUND, DASHES), (self.plan.seconds, INK, "solid")):
            draw_lines(axes, [((seconds, -6), (seconds, self.height))], color, 1.4, style=style)

    def _middle(self, port: int) -> float:
        return self.tops[port] + 0.4 * self.pitch

    def _draw_row(self, axes: Axes, port: int) -> None:
        """The part of the rate that passes, colour upon colour."""
        routes = [route for route in self.plan.routes if port in route.ports]
        edges = self._edges(routes, port)
        height = 0.8 * self.pitch
        floor = numpy.full(len(edges) - 1, self.tops[port] + height)
        full = self.plan.ports[port]["bytes_per_second"] * numpy.diff(edges)
        for color in sorted({self.plan.colors[route.root] for route in routes}):
            passed = sum(self._passed(route, port, edges) for route in routes if self.plan.colors[route.root] == color)
            top = numpy.maximum(floor - numpy.round(passed / full * height, 2), self.tops[port])
            # A file has only the places where something changes.
            changes = numpy.flatnonzero((numpy.diff(top, prepend=-1) != 0) | (numpy.diff(floor, prepend=-1) != 0))
            axes.stairs(top[changes], edges[[*changes, -1]], baseline=floor[changes], fill=True, color=color,
                        linewidth=0, gid=f"port-{port}-{color[1:]}", clip_on=False)
            floor = top
        if len(routes) == 1:
            self._part_chunks(axes, routes[0], port)

    def _edges(self, routes: list[Route], port: int) -> numpy.ndarray:
        """Where chunks begin and end; of more than a row could show, so many parts that their turns do not flicker."""
        times = numpy.unique([time + self._delay(route, port)
                              for route in routes for bar in route.bars for time in bar])
        return times if 1 < len(times) < PIXELS else numpy.linspace(0, self.whole, BINS + 1)

    def _passed(self, route: Route, port: int, edges: numpy.ndarray) -> numpy.ndarray:
        """Bytes of a route through a port, between edges."""
        times = numpy.ravel(sorted(route.bars)) + self._delay(route, port)
        busy = numpy.cumsum(numpy.diff(times, prepend=times[0]) * (numpy.arange(len(times)) % 2))
        return numpy.diff(numpy.interp(edges, times, busy)) * route.bytes / (busy[-1] or 1)

    def _part_chunks(self, axes: Axes, route: Route, port: int) -> None:
        """A hair between chunks, where they are long enough to be told apart."""
        delay, top = self._delay(route, port), self.tops[port]
        long = [begin + delay for begin, end in route.bars if end - begin > CHUNK_PIXELS * self.whole / PIXELS]
        draw_lines(axes, [((time, top), (time, top + 0.8 * self.pitch)) for time in long if time > delay], ROW, 0.6)

    def _delay(self, route: Route, port: int) -> float:
        """Bytes enter a host later by what they are on their way."""
        return route.latency_seconds if port == route.ports[-1] else 0

    def _draw_chain(self, axes: Axes) -> None:
        """Chunks each of which could begin only when the one before had ended."""
        spans, links, before = [], [], None
        for number, begin, end in self.plan.document["critical"]:
            route = self.plan.routes[number]
            for port in (route.ports[0], route.ports[-1]):
                if port in self.tops:
                    y, delay = self._middle(port), self._delay(route, port)
                    spans.append(((begin + delay, y), (end + delay, y)))
                    if before is not None and port == route.ports[0]:
                        links.append(((begin, before), (begin, y)))
            before = spans[-1][0][1] if route.ports[-1] in self.tops else None
        if len(self.plan.document["critical"]) <= LINKED_MAX:
            draw_lines(axes, links, INK, 0.8, style=(0, (2, 2)))
        draw_lines(axes, spans, INK, 1.6, "critical-chain")


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _titles(plan: Plan) -> tuple[str, str]:
    document = plan.document
    ratio = f"; {plan.seconds / plan.bound:.3f} x the bound" if plan.bound > 0 else ""
    return (f"{document['strategy']}: {bytes_text(document['network_bytes'])} between "
            f"{_counted(len(plan.layers), 'host')} in {seconds_text(plan.seconds)}",
            f"{_counted(document['relays'], 'relay')}, {_counted(document['depth'], 'hop')} deep, chunks of at most "
            f"{bytes_text(document['chunk_bytes'])}{ratio}{'; rates are assumed' * document['assumed_rates']}")


def _notes(network: Network, timeline: Timeline) -> list[str]:
    if not timeline.tops:
        return ["Nothing crosses the network: all bytes are where they are needed, or on their host."]
    counts = {"host": network.hosts_left_out, "route": network.routes_left_out, "port": timeline.left_out}
    left_out = ", ".join(_counted(count, thing) for thing, count in counts.items() if count)
    return ["Routes are as wide as their bytes. Rows show the part of a port's rate in use, and at the right the mean.",
            *[f"Not drawn, since others have more to do: {left_out}."] * bool(left_out)]


def draw(document: dict) -> Figure:
    plan = Plan(document)
    network, timeline = Network(plan, WIDTH - 2 * MARGIN), Timeline(plan)
    notes = _notes(network, timeline)
    legend = [("box", color, f"from {fitted(name, 120, SMALL)}") for name, color in plan.legend]
    legend += [("solid", INK, "critical chain, and the end"), (DASHES, BOUND, f"bound: {seconds_text(plan.bound)}")]
    middle = MARGIN + TITLE + network.height
    bottom = middle + (timeline.height + AXIS) * bool(timeline.tops)
    end = bottom + legend_height(legend, WIDTH) * bool(timeline.tops)
    figure = new_figure(WIDTH, end + NOTE * len(notes) + MARGIN)
    page = add_axes(figure, (MARGIN, MARGIN, WIDTH - 2 * MARGIN, end))
    title, subtitle = _titles(plan)
    write(page, (0, 8), title, size=HEAD, weight="bold")
    write(page, (0, 30), subtitle, size=TEXT, color=MUTED)
    for number, note in enumerate(notes):
        write(page, (0, end - MARGIN + NOTE * (number + 0.5)), note, size=SMALL, color=MUTED)
    if timeline.tops:
        network.draw(add_axes(figure, (MARGIN, MARGIN + TITLE, WIDTH - 2 * MARGIN, network.height)))
        left = MARGIN + timeline.label_width
        timeline.draw(add_axes(figure, (left, middle, WIDTH - left - MARGIN - USES, timeline.height), timeline.whole))
        add_legend(figure, legend, bottom)
    return figure
