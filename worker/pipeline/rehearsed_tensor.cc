#include "worker/pipeline/rehearsed_tensor.h"

#include "common/numbers/element_reducer.h"
#include "common/numbers/number_formats.h"
#include "common/plan/course_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace crossmesh {
namespace {

// Of a step's tensor, at any device that gets some of it.
int64_t SummandsOf(const TensorTable& table, int32_t tensor) {
  const int32_t group = table.group_of_tensor()[tensor];
  for (DeviceRank device = 0; device < std::ssize(table.devices()); ++device) {
    const TileRows rows = RowsOf(table, Side::kDestination, group, device);
    if (rows.bytes > 0) return rows.summands;
  }
  return 1;
}

template <typename Number>
void Put(Number number, std::byte* element) {
  std::memcpy(element, &number, sizeof(number));
}

// A whole number below 8, in any type that is reduced or converted.
void PutNumber(uint8_t number, DataType type, std::byte* element) {
  const uint32_t bits = BitsOf(number);
  switch (type) {
    case DataType::kF16:
      return Put(F16::Narrow(bits), element);
    case DataType::kBF16:
      return Put(Bf16::Narrow(bits), element);
    case DataType::kF32:
      return Put(bits, element);
    case DataType::kF64:
      return Put(double{FloatOf(bits)}, element);
    case DataType::kBool:
    case DataType::kU8:
    case DataType::kI8:
    case DataType::kF8E5M2:
    case DataType::kF8E4M3:
      return Put(number, element);
    case DataType::kI16:
    case DataType::kU16:
      return Put(uint16_t{number}, element);
    case DataType::kI32:
    case DataType::kU32:
      return Put(uint32_t{number}, element);
    case DataType::kI64:
    case DataType::kU64:
      return Put(uint64_t{number}, element);
  }
}

}  // namespace

RehearsedTensor::RehearsedTensor(const WorkerProgram::Transfer& transfer, int32_t tensor)
    : plan_(transfer.plan) {
  const WorkerPart& part = transfer.part->prepared->part();
  const int32_t group = part.tensors().group_of_tensor()[tensor];
  source_ = part.tensors().TypeOf(Side::kSource, group);
  destination_ = part.tensors().TypeOf(Side::kDestination, group);
  if (!part.has_courses()) return;
  const Course<WorkerPart>& course = part.courses().front();
  const auto of_step =
      static_cast<int32_t>(std::ranges::find(course.tensors, tensor) - course.tensors.begin());
  for (const Course<WorkerPart>::Step& step : course.steps) {
    if (!step.reduction.has_value()) continue;
    reductions_.emplace_back(SummandsOf(step.move->tensors(), of_step), *step.reduction);
  }
}

// Not the hash of a library, because both ends must agree.
uint64_t RehearsedTensor::WordOf(int64_t iteration, int32_t message) const {
  uint64_t mixed = 0;
  for (const int64_t word : {iteration, int64_t{plan_}, int64_t{message}}) {
    mixed = (mixed ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 32;
  }
  return mixed;
}

RehearsedTensor::Element RehearsedTensor::Source(uint64_t word) const {
  Element element{};
  if (is_number()) {
    PutNumber(1 + word % 7, source_, element.data());
  } else {
    element[0] = static_cast<std::byte>(word & 0xff);
  }
  return element;
}

RehearsedTensor::Element RehearsedTensor::Destination(uint64_t word) const {
  if (reductions_.empty() && source_ != destination_) {
    Element element{};
    PutNumber(1 + word % 7, destination_, element.data());
    return element;
  }
  Element element = Source(word);
  const int64_t item = ItemBytesOf(source_);
  for (const auto& [count, reduction] : reductions_) {
    // All summands are one in memory.
    const Element summand = element;
    const Summands summands{.first = summand.data(), .distance_bytes = 0, .count = count};
    ReducerFor(source_, reduction.kind)(summands, element.data(), item, reduction.divisor);
  }
  return element;
}

void RehearsedTensor::Fill(int64_t iteration, int32_t message, std::span<std::byte> tile) const {
  const Element element = Source(WordOf(iteration, message));
  const int64_t item = ItemBytesOf(source_);
  if (tile.empty()) return;
  std::memcpy(tile.data(), element.data(), item);
  // What is filled is copied behind itself.
  for (size_t filled = item; filled < tile.size();) {
    const size_t more = std::min(filled, tile.size() - filled);
    std::memcpy(tile.data() + filled, tile.data(), more);
    filled += more;
  }
}

bool RehearsedTensor::Fits(int64_t iteration, int32_t message,
                           std::span<const std::byte> tile) const {
  if (tile.empty()) return true;
  const Element element = Destination(WordOf(iteration, message));
  const int64_t item = ItemBytesOf(destination_);
  return std::memcmp(tile.data(), element.data(), item) == 0 &&
         std::memcmp(tile.data(), tile.data() + item, tile.size() - item) == 0;
}

}  // namespace crossmesh
