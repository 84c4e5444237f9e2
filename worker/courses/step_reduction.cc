#include "worker/courses/step_reduction.h"

#include "common/numbers/element_reducer.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

using Own = CoursePlaces::Reducing::Own;

int64_t LeftInRun(const Own& own, int64_t place) {
  return own.runs.run_bytes - place % own.runs.run_bytes;
}

const std::byte* PlaceIn(const Own& own, int64_t place) {
  return own.first + place / own.runs.run_bytes * own.runs.pitch + place % own.runs.run_bytes;
}

}  // namespace

int64_t StepReduction::ReducePiece() {
  int64_t reduced = 0;
  while (!done() && reduced < kPieceBytes) {
    const CoursePlaces::Reducing& tensor = tensors_[tensor_];
    // Whole elements, whatever their size.
    const int64_t piece =
        std::max<int64_t>(4096, (kPieceBytes - reduced) / tensor.summands.count / 4096 * 4096);
    int64_t bytes = std::min(piece, tensor.rows.row_bytes - offset_);
    Summands summands = tensor.summands;
    const int64_t place = row_ * tensor.rows.row_bytes + offset_;
    summands.first += place;
    if (tensor.own.first != nullptr) {
      bytes = std::min(bytes, LeftInRun(tensor.own, place));
      summands.elsewhere = PlaceIn(tensor.own, place);
      summands.elsewhere_index = tensor.own.index;
    }
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
