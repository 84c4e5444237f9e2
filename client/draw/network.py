"""Hosts of a plan as boxes, from left to right by their distance from where bytes come from, and routes as curves."""

import collections
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.bezier import BezierSegment
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from plan import Plan
from sheet import FRAME, MUTED, PLAIN, SMALL, TEXT, Box, Point, bytes_text, fitted, width_of, write

EDGE = 26  # above and below, for routes that go around hosts
SIDE = 46  # to the right of all hosts, for routes within the last column
LARGE, SMALL_HOST = (124, 28), (84, 15)  # width and height of hosts
GAP, SMALL_GAP, LINE_GAP = 16, 4, 26  # between hosts of a column
COLUMN_MAX, SMALL_COLUMN_MAX = 10, 32
COLUMNS_MAX, SMALL_COLUMNS_MAX = 6, 8
HOSTS_MAX, ROUTES_MAX, LABELLED_MAX = 96, 1500, 14
WIDEST, NARROWEST = 8.0, 0.8
DETOURS = (-34, 34, -60, 60, -100, 100)


class Network:
    def __init__(self, plan: Plan, width: float):
        self.plan = plan
        kept = set(sorted(plan.layers, key=plan.bytes_of, reverse=True)[:HOSTS_MAX])
        hosts = [host for host in plan.layers if host in kept]
        tallest = max(collections.Counter(plan.layers.values()).values(), default=0)
        self.is_large = len(hosts) <= 24 and tallest <= COLUMN_MAX
        self.size = LARGE if self.is_large else SMALL_HOST
        self.places = self._places(hosts, width - SIDE)
        self.height = max((box[1] + box[3] for box in self.places.values()), default=-EDGE) + EDGE
        self.hosts_left_out = len(plan.layers) - len(hosts)
        routes: collections.Counter[tuple[int, int, int]] = collections.Counter()
        for route in plan.routes:
            routes[route.sender, route.receiver, route.root] += route.bytes
        placed = [route for route in routes.most_common() if set(route[0][:2]) <= kept]
        self.routes = placed[:ROUTES_MAX]
        self.routes_left_out = len(routes) - len(self.routes)

    def _columns(self, hosts: Sequence[int]) -> tuple[list[list[int]], float]:
        """And the gaps in them. Long chains go in lines that turn at their ends."""
        most, width = (COLUMN_MAX, COLUMNS_MAX) if self.is_large else (SMALL_COLUMN_MAX, SMALL_COLUMNS_MAX)
        columns: list[list[int]] = []
        for host in hosts:
            if not columns or self.plan.layers[columns[-1][-1]] != self.plan.layers[host] or len(columns[-1]) == most:
                columns.append([])
            columns[-1].append(host)
        if len(columns) == 1 and len(hosts) > 1:
            # Hosts that only exchange among each other: one column would leave no room for routes.
            half = (len(hosts) + 1) // 2
            columns = [columns[0][:half], columns[0][half:]]
        if len(columns) <= width:
            return columns, GAP if self.is_large else SMALL_GAP
        turned: list[list[int]] = [[] for _ in range(width)]
        for index, host in enumerate(hosts):
            line, at = divmod(index, width)
            turned[at if line % 2 == 0 else -1 - at].append(host)
        return turned, LINE_GAP

    def _places(self, hosts: Sequence[int], width: float) -> dict[int, Box]:
        columns, gap = self._columns(hosts)
        pitch = self.size[1] + gap
        tallest = max(map(len, columns), default=0)
        places = {}
        for index, column in enumerate(columns):
            x = (width - self.size[0]) * (index / (len(columns) - 1) if len(columns) > 1 else 0.5)
            top = EDGE + (0 if gap == LINE_GAP else (tallest - len(column)) * pitch / 2)
            places |= {host: (x, top + row * pitch, *self.size) for row, host in enumerate(column)}
        return places

    def draw(self, axes: Axes) -> None:
        curves = list(self._curves())
        # The routes with most bytes lie on top of the others.
        for (sender, receiver, root), curve, width in reversed(curves):
            self._draw_route(axes, curve, {"edgecolor": self.plan.colors[root], "linewidth": width,
                                           "gid": f"route-{sender}-{receiver}-{root}"})
        for host, box in self.places.items():
            self._draw_host(axes, host, box)
        if len(curves) <= LABELLED_MAX:
            self._write_bytes(axes, [curve for _, curve, _ in curves])

    def _draw_host(self, axes: Axes, number: int, box: Box) -> None:
        host = self.plan.hosts[number]
        x, y, width, height = box
        axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=3", facecolor="white",
                                      edgecolor=FRAME, linewidth=1, gid=f"host-{number}", zorder=3, clip_on=False))
        size, middle = TEXT if self.is_large else 8.5, y + height / 2
        name = fitted(host["name"], width - 16, size, "bold")
        write(axes, (x + 8, middle), name, size=size, weight="bold", zorder=4)
        room = width - 24 - width_of(name, size, "bold")
        if self.is_large and host["rack"] and room > 36:
            rack = fitted(f"rack {host['rack']}", room, SMALL)
            write(axes, (x + width - 8, middle), rack, size=SMALL, color=MUTED, ha="right", zorder=4)

    def _curves(self) -> Iterator[tuple[tuple[int, int, int], Path, float]]:
        """Routes as wide as their bytes, but no wider than that ends at one host can be told apart."""
        ends: dict[tuple[int, bool], list[tuple[float, int, int]]] = collections.defaultdict(list)
        for index, ((sender, receiver, _), _) in enumerate(self.routes):
            out, into = self._sides(sender, receiver)
            ends[sender, out].append((self.places[receiver][1], index, 0))
            ends[receiver, into].append((self.places[sender][1], index, 1))
        room, at, widest = self.size[1] - 6, {}, WIDEST
        for (host, is_right), here in ends.items():
            x, y, width, height = self.places[host]
            for order, (_, index, end) in enumerate(sorted(here)):
                at[index, end] = (x + width * is_right, y + height / 2 + ((order + 0.5) / len(here) - 0.5) * room)
            widest = max(NARROWEST, min(widest, 1.3 * room / len(here)))
        for index, (route, count) in enumerate(self.routes):
            curve = self._around((at[index, 0], at[index, 1]), route)
            yield route, curve, NARROWEST + (widest - NARROWEST) * count / self.routes[0][1]

    def _sides(self, sender: int, receiver: int) -> tuple[bool, bool]:
        """Whether a route leaves, and enters, on the right: sides that face each other; in one column both right."""
        return self.places[receiver][0] >= self.places[sender][0], self.places[receiver][0] <= self.places[sender][0]

    def _around(self, ends: tuple[Point, Point], route: tuple[int, int, int]) -> Path:
        """The plain curve, or the first that hits no other host; behind the hosts where there is none."""
        ways = [1 if is_right else -1 for is_right in self._sides(*route[:2])]
        others = [Bbox.from_bounds(*box).padded(3) for host, box in self.places.items() if host not in route[:2]]
        curves = [_curve(ends, ways), *(_detour(ends, ways, detour) for detour in DETOURS)]
        return next((curve for curve in curves if 2 < curve.get_extents().ymin
                     and curve.get_extents().ymax < self.height - 2
                     and not any(curve.intersects_bbox(box, filled=False) for box in others)), curves[0])

    def _draw_route(self, axes: Axes, curve: Path, style: dict) -> None:
        (tip_x, tip_y), before, width = curve.vertices[-1], curve.vertices[-2], style["linewidth"]
        length, half = min(8, 3 + width), width / 2 + min(2.4, 1 + width / 3)
        neck = tip_x - length * (1 if before[0] < tip_x else -1)
        line = Path([*curve.vertices[:-1], (neck, tip_y)], curve.codes)
        axes.add_patch(PathPatch(line, fill=False, alpha=0.85 if len(self.routes) <= 60 else 0.5, **style))
        axes.fill((neck, tip_x, neck), (tip_y - half, tip_y, tip_y + half), color=style["edgecolor"], linewidth=0)

    def _write_bytes(self, axes: Axes, curves: list[Path]) -> None:
        """On each route, where neither a host nor other bytes are."""
        taken = [Bbox.from_bounds(*box) for box in self.places.values()]
        for (_, count), curve in zip(self.routes, curves):
            text, line = bytes_text(count), BezierSegment(curve.vertices[:4])
            width = width_of(text, SMALL) + 4
            if abs(curve.vertices[-1][0] - curve.vertices[0][0]) < width:
                continue  # it would hide a route within a column
            for part in (0.5, 0.38, 0.62, 0.26, 0.74):
                x, y = line(part)
                place = Bbox.from_bounds(x - width / 2, y - 6, width, 12)
                if not any(place.overlaps(other) for other in taken):
                    taken.append(place)
                    write(axes, (x, y), text, size=SMALL, ha="center", bbox=PLAIN, zorder=4)
                    break


def _bezier(points: Sequence[Point]) -> Path:
    return Path(points, [Path.MOVETO] + [Path.CURVE4] * (len(points) - 1))


def _curve(ends: tuple[Point, Point], ways: Sequence[int]) -> Path:
    """Level at both ends."""
    (x1, y1), (x2, y2) = ends
    bend = max(22, abs(x2 - x1) / 2) if x1 != x2 else 42
    return _bezier([(x1, y1), (x1 + ways[0] * bend, y1), (x2 + ways[1] * bend, y2), (x2, y2)])


def _detour(ends: tuple[Point, Point], ways: Sequence[int], detour: float) -> Path:
    """By way of a point halfway, below the lower end, or above the higher one: steep beside hosts, level between."""
    (x1, y1), (x2, y2) = ends
    y = detour + (min(y1, y2) if detour < 0 else max(y1, y2))
    return _bezier([(x1, y1), (x1 + ways[0] * 26, y1), (x1 + ways[0] * 8, y), ((x1 + x2) / 2, y),
                    (x2 + ways[1] * 8, y), (x2 + ways[1] * 26, y2), (x2, y2)])
