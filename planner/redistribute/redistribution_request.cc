#include "planner/redistribute/redistribution_request.h"

#include "common/base/checked_math.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Where a part of an axis is used at one end: the dimension, or -1 where it is partial.
struct PartUse {
  SubAxis part;
  int dimension;
};

std::string Place(int dimension) {
  return dimension < 0 ? std::string("partial") : absl::StrCat("dimension ", dimension);
}

std::vector<PartUse> UsesOf(const RedistributionEnd& end) {
  std::vector<PartUse> uses;
  for (size_t dimension = 0; dimension < end.dimensions.size(); ++dimension) {
    for (const SubAxis& part : end.dimensions[dimension]) {
      uses.push_back({part, static_cast<int>(dimension)});
    }
  }
  for (const PartialAxis& partial : end.partial) uses.push_back({partial.part, -1});
  return uses;
}

absl::Status ValidatePart(absl::string_view name, const SubAxis& part, std::span<const Axis> axes) {
  if (part.axis < 0 || part.axis >= static_cast<int32_t>(axes.size())) {
    return Invalid(name, ": expected an axis below ", axes.size(), ", found axis ", part.axis);
  }
  const int64_t size = axes[part.axis].size;
  if (part.before < 1 || part.size < 1 || size % part.before != 0 ||
      size / part.before % part.size != 0) {
    return Invalid(name, ": expected a part of axis ", axes[part.axis].name, " of size ", size,
                   ", found ", ToString(part, axes));
  }
  return absl::OkStatus();
}

// Two parts of one axis intersect unless one is more major than the other as a whole.
bool Intersect(const SubAxis& a, const SubAxis& b) {
  return a.axis == b.axis && a.before < b.before * b.size && b.before < a.before * a.size;
}

absl::Status ValidateDisjoint(absl::string_view name, const std::vector<PartUse>& uses,
                              std::span<const Axis> axes) {
  for (size_t i = 0; i < uses.size(); ++i) {
    RETURN_IF_ERROR(ValidatePart(name, uses[i].part, axes));
    for (size_t j = 0; j < i; ++j) {
      if (!Intersect(uses[i].part, uses[j].part)) continue;
      return Invalid(name, ": expected each axis in one place, found ",
                     ToString(uses[j].part, axes), " in ", Place(uses[j].dimension), " and ",
                     ToString(uses[i].part, axes), " in ", Place(uses[i].dimension));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateEnd(absl::string_view name, const RedistributionEnd& end,
                         const RedistributionRequest& request) {
  if (static_cast<int>(end.dimensions.size()) != request.shape.rank()) {
    return Invalid(name, ": expected ", request.shape.rank(), " dimensions as shape ",
                   ToString(request.shape), " has, found ", end.dimensions.size());
  }
  RETURN_IF_ERROR(ValidateDisjoint(name, UsesOf(end), request.axes));
  for (int dimension = 0; dimension < request.shape.rank(); ++dimension) {
    int64_t parts = 1;
    for (const SubAxis& part : end.dimensions[dimension]) parts *= part.size;
    if (end.rule == UnevenRule::kExact && request.shape[dimension] % parts != 0) {
      return Invalid(name, ": expected dimension ", dimension, " of length ",
                     request.shape[dimension], " to divide under rule exact, found ", parts,
                     " parts");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateAxes(const RedistributionRequest& request) {
  int64_t devices = 1;
  for (const Axis& axis : request.axes) {
    if (axis.size < 1) {
      return Invalid("axis ", axis.name, ": expected a size of at least 1, found ", axis.size);
    }
    const std::optional<int64_t> product = CheckedMultiply(devices, axis.size);
    if (!product.has_value() || *product > Mesh::kSlotsMax) {
      return Invalid("axis ", axis.name, ": expected at most ", Mesh::kSlotsMax,
                     " devices in the mesh, found size ", axis.size, " over ", devices);
    }
    devices = *product;
  }
  if (request.item_bytes < 1 || request.item_bytes > (int64_t{1} << 24)) {
    return Invalid("item_bytes: expected 1 to 2^24, found ", request.item_bytes);
  }
  if (!CheckedMultiply(request.item_bytes * 4, request.shape.elements()).has_value() ||
      request.item_bytes * 4 >
          INT64_MAX / std::max<int64_t>(request.shape.elements(), 1) / devices) {
    return Invalid("shape ", ToString(request.shape), ": expected bytes times devices below 2^61, ",
                   "found items of ", request.item_bytes, " bytes on ", devices, " devices");
  }
  return absl::OkStatus();
}

absl::Status ValidateReductions(const RedistributionRequest& request) {
  std::optional<PartialReduction> kind;
  for (const RedistributionEnd* end : {&request.source, &request.destination}) {
    for (const PartialAxis& partial : end->partial) {
      if (kind.has_value() && *kind != partial.reduction) {
        return Invalid("partial axis ", ToString(partial.part, request.axes),
                       ": expected one kind of reduction for the tensor, ",
                       PartialReductionName(*kind), ", found ",
                       PartialReductionName(partial.reduction));
      }
      kind = partial.reduction;
    }
  }
  return absl::OkStatus();
}

// Whether the partial parts of `whole` cover `part`: each step takes the covering part that begins
// where the last one ended.
bool CoveredBy(SubAxis part, const std::vector<PartialAxis>& whole) {
  while (part.size > 1) {
    const auto found = std::ranges::find_if(whole, [&](const PartialAxis& candidate) {
      return candidate.part.axis == part.axis && candidate.part.before <= part.before &&
             part.before < candidate.part.before * candidate.part.size;
    });
    if (found == whole.end()) return false;
    const int64_t end = found->part.before * found->part.size;
    if (part.before * part.size <= end) return true;
    part.size = part.before * part.size / end;
    part.before = end;
  }
  return true;
}

absl::Status ValidateDestinationPartial(const RedistributionRequest& request) {
  for (const PartialAxis& partial : request.destination.partial) {
    if (CoveredBy(partial.part, request.source.partial)) continue;
    std::vector<std::string> names;
    for (const PartialAxis& source : request.source.partial) {
      names.push_back(ToString(source.part, request.axes));
    }
    return Invalid("destination: expected partial axes among the source's, {",
                   absl::StrJoin(names, ", "), "}, found ", ToString(partial.part, request.axes));
  }
  return absl::OkStatus();
}

// Whether the boundaries of two parts divide each other.
bool Divide(const SubAxis& a, const SubAxis& b) {
  for (const int64_t x : {a.before, a.before * a.size}) {
    for (const int64_t y : {b.before, b.before * b.size}) {
      if (x % y != 0 && y % x != 0) return false;
    }
  }
  return true;
}

// Boundaries of the parts of one axis must form a chain of divisors, else the two ends have no
// common parts: none of y:(1)2 and y:(1)3 is a part of the other.
absl::Status ValidateCommonParts(const RedistributionRequest& request) {
  std::vector<PartUse> uses = UsesOf(request.source);
  for (const PartUse& use : UsesOf(request.destination)) uses.push_back(use);
  for (const PartUse& a : uses) {
    for (const PartUse& b : uses) {
      if (a.part.axis != b.part.axis || Divide(a.part, b.part)) continue;
      return Invalid("axis ", request.axes[a.part.axis].name,
                     ": expected parts that divide each other, found ",
                     ToString(a.part, request.axes), " and ", ToString(b.part, request.axes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view PartialReductionName(PartialReduction kind) {
  switch (kind) {
    case PartialReduction::kSum:
      return "sum";
    case PartialReduction::kMean:
      return "mean";
    case PartialReduction::kMin:
      return "min";
    case PartialReduction::kMax:
      return "max";
  }
  return "unknown";
}

absl::StatusOr<PartialReduction> ParsePartialReduction(absl::string_view name) {
  for (const PartialReduction kind : {PartialReduction::kSum, PartialReduction::kMean,
                                      PartialReduction::kMin, PartialReduction::kMax}) {
    if (name == PartialReductionName(kind)) return kind;
  }
  return Invalid("reduction: expected sum, mean, min or max, found \"", name, "\"");
}

absl::Status Validate(const RedistributionRequest& request) {
  RETURN_IF_ERROR(ValidateAxes(request));
  RETURN_IF_ERROR(ValidateEnd("source", request.source, request));
  RETURN_IF_ERROR(ValidateEnd("destination", request.destination, request));
  RETURN_IF_ERROR(ValidateReductions(request));
  RETURN_IF_ERROR(ValidateDestinationPartial(request));
  return ValidateCommonParts(request);
}

absl::StatusOr<RedistributionEnd> EndOf(const Layout& layout, std::span<const Axis> axes,
                                        std::span<const std::string> partial,
                                        PartialReduction reduction) {
  if (layout.axes() == nullptr) {
    return Invalid("layout ", ToString(layout), ": expected axes, found explicit tiles");
  }
  RedistributionEnd end{.rule = layout.axes()->rule};
  for (const std::vector<std::string>& dimension : layout.axes()->dimensions) {
    std::vector<SubAxis>& parts = end.dimensions.emplace_back();
    for (const std::string& name : dimension) {
      ASSIGN_OR_RETURN(parts.emplace_back(), ParseSubAxis(name, axes));
    }
  }
  for (const std::string& name : partial) {
    ASSIGN_OR_RETURN(const SubAxis part, ParseSubAxis(name, axes));
    end.partial.push_back({part, reduction});
  }
  return end;
}

}  // namespace crossmesh
