#include "worker/courses/step_reduction.h"

#include "common/numbers/element_reducer.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

}  // namespace

int64_t StepReduction::ReducePiece() {
  int64_t reduced = 0;
  while (!done() && reduced < kPieceBytes) {
    const CoursePlaces::Reducing& tensor = tensors_[tensor_];
    // Whole elements, whatever their size.
    const int64_t piece =
        std::max<int64_t>(4096, (kPieceBytes - reduced) / tensor.summands.count / 4096 * 4096);
    const int64_t bytes = std::min(piece, tensor.rows.row_bytes - offset_);
    Summands summands = tensor.summands;
    summands.first += row_ * tensor.rows.row_bytes + offset_;
    ReducerFor(tensor.type, reduction_.kind)(
        summands, tensor.out + row_ * tensor.out_pitch + offset_, bytes, reduction_.divisor);
    reduced += bytes * summands.count;
    offset_ += bytes;
    if (offset_ < tensor.rows.row_bytes) continue;
    offset_ = 0;
    if (++row_ < tensor.rows.rows()) continue;
    row_ = 0;
    ++tensor_;
  }
  return reduced;
}

}  // namespace crossmesh
