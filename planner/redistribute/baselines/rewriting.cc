#include "planner/redistribute/baselines/rewriting.h"

#include "common/base/check.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

using Kind = RewriteOp::Kind;
using Ops = std::vector<RewriteOp>;

RewriteOp Gather(int i, int32_t a) { return {.kind = Kind::kGather, .dimension = i, .a = a}; }
RewriteOp Slice(int i, int32_t a) { return {.kind = Kind::kSlice, .dimension = i, .a = a}; }
RewriteOp Move(int i, int j, int32_t a) {
  return {.kind = Kind::kMove, .dimension = i, .other = j, .a = a};
}
RewriteOp SwapHeads(int i, int j) { return {.kind = Kind::kSwapHeads, .dimension = i, .other = j}; }
RewriteOp Replace(int i, int32_t old, int32_t atom) {
  return {.kind = Kind::kReplace, .dimension = i, .a = old, .b = atom};
}
RewriteOp SwapWithin(int i, int32_t a, int32_t b) {
  return {.kind = Kind::kSwapWithin, .dimension = i, .a = a, .b = b};
}

// The rules of the sheet's table 2.2, each for a pair of neighbours. Nothing: the pair stays.
class Rules {
 public:
  // `before`: the type before the first of the pair.
  Rules(const TypeSpace& space, const ContiguousType& before) : space_(space), before_(before) {}

  std::optional<Ops> Rewrite(const RewriteOp& first, const RewriteOp& second) const {
    if (first.kind == Kind::kGather) return AfterGather(first, second);
    if (second.kind == Kind::kSlice && first.kind != Kind::kSlice)
      return BeforeSlice(first, second);
    return std::nullopt;
  }

 private:
  int64_t Size(int32_t atom) const { return space_.atoms()[atom].size; }
  int32_t Head(int dimension, size_t below = 0) const {
    const std::vector<int32_t>& atoms = before_.dimensions[dimension];
    return atoms[atoms.size() - 1 - below];
  }

  std::optional<Ops> AfterGather(const RewriteOp& gather, const RewriteOp& next) const {
    const int i = gather.dimension;
    const int32_t a = gather.a;
    switch (next.kind) {
      case Kind::kGather:
        return std::nullopt;
      case Kind::kSlice:
        return GatherSlice(i, a, next.dimension, next.a);
      case Kind::kMove:
        return GatherMove(gather, next);
      case Kind::kSwapHeads: {
        if (i != next.dimension && i != next.other) break;
        const int l = i == next.dimension ? next.other : next.dimension;
        const int32_t under = Head(i, 1);
        const int32_t far = Head(l);
        return Ops{SwapWithin(i, a, under), SwapHeads(i, l), SwapWithin(i, a, far), gather};
      }
      case Kind::kReplace:
        return GatherReplace(gather, next);
      case Kind::kSwapWithin:
        break;
    }
    return Ops{next, gather};
  }

  Ops GatherSlice(int i, int32_t a, int j, int32_t b) const {
    if (i != j) return a == b ? Ops{Move(i, j, a)} : Ops{Slice(j, b), Gather(i, a)};
    if (a == b) return {};
    if (Size(a) == Size(b)) return {Replace(i, a, b)};
    return {Slice(i, b), SwapWithin(i, b, a), Gather(i, a)};
  }

  Ops GatherMove(const RewriteOp& gather, const RewriteOp& move) const {
    const int i = gather.dimension;
    const int32_t a = gather.a;
    const int k = move.dimension;
    const int l = move.other;
    const int32_t c = move.a;
    if (i == k) return {SwapWithin(i, a, c), Move(i, l, c), gather};
    if (i != l) return {move, gather};
    if (Size(a) == Size(c)) return {SwapHeads(i, k), Gather(k, a)};
    return {Move(k, i, c), SwapWithin(i, a, c), gather};
  }

  Ops GatherReplace(const RewriteOp& gather, const RewriteOp& replace) const {
    const int i = gather.dimension;
    const int32_t a = gather.a;
    const int32_t c = replace.a;
    const int32_t x = replace.b;
    if (i == replace.dimension) {
      if (a == x) return {SwapWithin(i, a, c), Gather(i, c)};
      return {SwapWithin(i, a, c), Replace(i, c, x), SwapWithin(i, x, a), gather};
    }
    if (a == x) return {SwapHeads(i, replace.dimension), Gather(i, c)};
    return {replace, gather};
  }

  std::optional<Ops> BeforeSlice(const RewriteOp& first, const RewriteOp& slice) const {
    const int i = slice.dimension;
    const int32_t x = slice.a;
    switch (first.kind) {
      case Kind::kMove:
        if (i == first.dimension) {
          return Ops{slice, SwapWithin(i, x, first.a), Move(i, first.other, first.a)};
        }
        if (i == first.other) {
          return Ops{slice, Move(first.dimension, i, first.a), SwapWithin(i, x, first.a)};
        }
        break;
      case Kind::kSwapHeads: {
        if (i != first.dimension && i != first.other) break;
        const int l = i == first.dimension ? first.other : first.dimension;
        const int32_t near = Head(i);
        const int32_t far = Head(l);
        return Ops{slice, SwapWithin(i, x, near), SwapHeads(i, l), SwapWithin(i, x, far)};
      }
      case Kind::kReplace:
        return ReplaceSlice(first, slice);
      case Kind::kGather:
      case Kind::kSlice:
      case Kind::kSwapWithin:
        break;
    }
    return Ops{slice, first};
  }

  Ops ReplaceSlice(const RewriteOp& replace, const RewriteOp& slice) const {
    const int i = slice.dimension;
    const int32_t c = replace.a;
    const int32_t x = replace.b;
    const int32_t y = slice.a;
    if (i == replace.dimension) {
      if (y == c) return {Slice(i, x), SwapWithin(i, x, c)};
      return {slice, SwapWithin(i, y, c), Replace(i, c, x), SwapWithin(i, x, y)};
    }
    if (y == c) return {Slice(i, x), SwapHeads(i, replace.dimension)};
    return {slice, replace};
  }

  const TypeSpace& space_;
  const ContiguousType& before_;
};

Ops GatherAllSliceAll(const ContiguousType& source, const ContiguousType& destination) {
  Ops ops;
  for (size_t i = 0; i < source.dimensions.size(); ++i) {
    for (size_t j = source.dimensions[i].size(); j-- > 0;) {
      ops.push_back(Gather(static_cast<int>(i), source.dimensions[i][j]));
    }
  }
  for (size_t i = 0; i < destination.dimensions.size(); ++i) {
    for (const int32_t atom : destination.dimensions[i]) {
      ops.push_back(Slice(static_cast<int>(i), atom));
    }
  }
  return ops;
}

// Rewrites the first pair that a rule is for.
bool RewriteOnce(const TypeSpace& space, const ContiguousType& source, Ops& ops) {
  ContiguousType type = source;
  for (size_t i = 0; i + 1 < ops.size(); ++i) {
    const std::optional<Ops> instead = Rules(space, type).Rewrite(ops[i], ops[i + 1]);
    if (instead.has_value()) {
      const auto at = ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i),
                                ops.begin() + static_cast<std::ptrdiff_t>(i) + 2);
      ops.insert(at, instead->begin(), instead->end());
      return true;
    }
    Apply(ops[i], type);
  }
  return false;
}

}  // namespace

void Apply(const RewriteOp& op, ContiguousType& type) {
  std::vector<int32_t>& atoms = type.dimensions[op.dimension];
  switch (op.kind) {
    case Kind::kGather:
    case Kind::kMove:
      CHECK(!atoms.empty() && atoms.back() == op.a);
      atoms.pop_back();
      if (op.kind == Kind::kMove) type.dimensions[op.other].push_back(op.a);
      return;
    case Kind::kSlice:
      atoms.push_back(op.a);
      return;
    case Kind::kSwapHeads:
      std::swap(atoms.back(), type.dimensions[op.other].back());
      return;
    case Kind::kReplace:
      CHECK(!atoms.empty() && atoms.back() == op.a);
      atoms.back() = op.b;
      return;
    case Kind::kSwapWithin:
      std::iter_swap(std::ranges::find(atoms, op.a), std::ranges::find(atoms, op.b));
      return;
  }
}

std::vector<RewriteOp> Rewrite(const TypeSpace& space, const ContiguousType& source,
                               const ContiguousType& destination) {
  Ops ops = GatherAllSliceAll(source, destination);
  while (RewriteOnce(space, source, ops)) {
  }
  return ops;
}

}  // namespace crossmesh
