#include "client/python/extension/bindings.h"
#include "client/python/extension/python_values.h"
#include "common/mesh/data_type.h"
#include "common/mesh/layout.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/python/raised_status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace crossmesh {
namespace nb = nanobind;
namespace {

using Lengths = std::vector<int64_t>;
using AxesOfDimensions = std::vector<std::vector<std::string>>;

Layout OfAxes(AxesOfDimensions dimensions, const std::string& uneven) {
  const Layout layout(AxisLayout{std::move(dimensions), OrRaise(ParseUnevenRule(uneven))});
  // What text cannot say, such as an axis twice, is refused here already.
  return OrRaise(ParseLayout(ToString(layout)));
}

Layout OfTiles(const std::vector<nb::object>& tiles) {
  ExplicitLayout layout;
  for (const nb::object& boxes : tiles) {
    Tile tile;
    for (const nb::handle box : boxes) tile.push_back(BoxOf(box));
    layout.slots.push_back(std::move(tile));
  }
  return Layout(std::move(layout));
}

nb::list TilesOf(const Layout& layout, const Mesh& mesh, const Lengths& shape) {
  const Shape checked = ShapeOf(shape);
  OrRaise(layout.Validate(mesh, checked));
  nb::list tiles;
  for (const Tile& tile : layout.Tiles(mesh, checked)) tiles.append(ToPython(tile));
  return tiles;
}

nb::tuple MatchOf(const TextRules& rules, const std::string& tensor, int rank) {
  const RuleMatch match = OrRaise(rules.rules.Match(tensor, rank));
  const nb::object type =
      match.type ? nb::object(nb::str(std::string(DataTypeName(*match.type)).c_str())) : nb::none();
  return nb::make_tuple(match.layout, ToPython(match.coordinates), type);
}

void BindRules(nb::module_& module) {
  nb::class_<TextRules>(module, "Rules",
                        "Layouts of tensors by name pattern, one rule a line: the first that "
                        "matches holds. Immutable.")
      .def(
          "__init__",
          [](TextRules* self, const std::string& text) {
            new (self) TextRules{text, OrRaise(LayoutRules::Parse(text))};
          },
          nb::arg("text"),
          "From their text (docs/text-forms.md), such as `*.weight [model, -]`. Raises "
          "InvalidArgumentError naming the line.")
      .def_ro("text", &TextRules::text, "As they were given.")
      .def("match", &MatchOf, nb::arg("tensor"), nb::arg("rank"),
           nb::sig("def match(self, tensor: str, rank: int) -> "
                   "tuple[Layout, dict[str, int], str | None]"),
           "The layout of a tensor of that name and rank, which is how many dimensions it has, the "
           "coordinates of the sub-mesh that has it, and its type there if the rule names one. "
           "Raises NotFoundError where no rule matches.")
      .def("__str__", [](const TextRules& rules) { return rules.text; })
      .def("__repr__", [](const TextRules& rules) {
        return absl::StrCat("Rules(", nb::repr(nb::cast(rules.text)).c_str(), ")");
      });
}

void BindForm(nb::class_<Layout>& layout) {
  layout
      .def_prop_ro(
          "dimensions",
          [](const Layout& self) {
            return self.axes() == nullptr ? std::nullopt : std::optional(self.axes()->dimensions);
          },
          "The axes that cut each dimension, major first; None of explicit tiles.")
      .def_prop_ro(
          "uneven",
          [](const Layout& self) {
            return self.axes() == nullptr
                       ? std::nullopt
                       : std::optional(std::string(UnevenRuleName(self.axes()->rule)));
          },
          "The rule for lengths that parts do not divide; None of explicit tiles.")
      .def(
          "validate",
          [](const Layout& self, const Mesh& mesh, const Lengths& shape) {
            OrRaise(self.Validate(mesh, ShapeOf(shape)));
          },
          nb::arg("mesh"), nb::arg("shape"),
          "Raises InvalidArgumentError unless the layout fits mesh and shape.")
      .def(
          "tiles", &TilesOf, nb::arg("mesh"), nb::arg("shape"),
          nb::sig("def tiles(self, mesh: Mesh, shape: collections.abc.Sequence[int]) -> "
                  "list[list[tuple[slice, ...]]]"),
          "By slot of the mesh, the boxes that it holds of a tensor of this shape, in the order of "
          "its memory; a box indexes an array. Raises what validate() does.");
}

}  // namespace

void BindLayout(nb::module_& module) {
  nb::class_<Layout> layout(
      module, "Layout",
      "How a tensor is spread over a mesh: axes that cut each dimension, and a rule for "
      "uneven lengths; or explicit tiles by slot. Immutable.");
  layout
      .def(
          "__init__",
          [](Layout* self, const std::string& text) {
            new (self) Layout(OrRaise(ParseLayout(text)));
          },
          nb::arg("text"),
          "From its text, such as `[data*model, -] nested_chunk`. Raises InvalidArgumentError.")
      .def_static(
          "of", &OfAxes, nb::arg("dimensions"), nb::arg("uneven") = "exact",
          "From the axes that cut each of its dimensions, major first, and a rule for lengths "
          "that parts do not divide: `exact` refuses them, `chunk`, `nested_chunk` and "
          "`balanced` cut them (docs/text-forms.md). Raises InvalidArgumentError.")
      .def_static("of_tiles", &OfTiles, nb::arg("tiles"),
                  nb::sig("def of_tiles(tiles: collections.abc.Sequence[collections.abc.Iterable["
                          "collections.abc.Iterable[slice | tuple[int, int]]]]) -> Layout"),
                  "From the boxes of every slot, in the order of its memory. A box has a slice, or "
                  "first and end, for each dimension.")
      .def("__str__", [](const Layout& self) { return ToString(self); })
      .def("__repr__",
           [](const Layout& self) { return absl::StrCat("Layout('", ToString(self), "')"); })
      .def(
          "_repr_html_", [](nb::handle layout) { return DrawnByPackage("html_of_layout", layout); },
          nb::sig("def _repr_html_(self) -> str"), "A table of its dimensions, for notebooks.")
      .def(
          "__eq__",
          [](const Layout& self, nb::handle other) {
            return nb::isinstance<Layout>(other) && self == nb::cast<const Layout&>(other);
          },
          nb::arg("other"), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Layout& self) { return nb::hash(nb::cast(ToString(self))); })
      .def(
          "__reduce__",
          [](const Layout& self) {
            return nb::make_tuple(nb::type<Layout>(), nb::make_tuple(ToString(self)));
          },
          nb::sig("def __reduce__(self) -> tuple[type[Layout], tuple[str]]"));
  BindForm(layout);
  BindRules(module);
}

}  // namespace crossmesh
