#include "worker/gpu/compiler/testing/small_plans.h"

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"

#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

Plan::Spec SpecOf(const std::vector<TensorText>& texts) {
  auto tensors = std::make_shared<const TensorTable>(TableOf(texts));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  return {.tensors = tensors,
          .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
          .chunk_bytes = Plan::kLeafBytes};
}

// One tensor of bytes, whole at every device of both meshes.
TensorText Whole(int64_t length, const std::string& source, const std::string& destination) {
  return {.shape = absl::StrCat("[", length, "]"),
          .source_mesh = source,
          .source = "[-]",
          .destination_mesh = destination,
          .destination = "[-]",
          .type = DataType::kU8};
}

// Of a whole class by one hop, due all the time.
void AddRelay(ClassIndex slice_class, const Hop& hop, Plan::Spec& spec) {
  spec.relays.push_back({.slice_class = slice_class,
                         .root = hop.from,
                         .end = spec.slicing->classes()[slice_class].bytes,
                         .first_hop = std::ssize(spec.hops),
                         .hop_count = 1,
                         .due = {.begin = 0, .end = DueTime::kParts}});
  spec.hops.push_back(hop);
}

}  // namespace

Plan::Spec ToTwoDevices(int64_t bytes, std::vector<Hop> hops) {
  Plan::Spec spec = SpecOf({Whole(bytes, "x=1 on a.0", "x=2 on b.0-1")});
  spec.relays.push_back({.begin = 0,
                         .end = bytes,
                         .hop_count = static_cast<int32_t>(hops.size()),
                         .due = {.begin = 0, .end = DueTime::kParts}});
  spec.hops = std::move(hops);
  spec.periods = static_cast<int32_t>(Plan::LeavesOf(bytes));
  return spec;
}

Plan::Spec ThroughTwoHops(int64_t bytes) {
  return ToTwoDevices(bytes,
                      {{.from = 0, .to = 1, .period = 0}, {.from = 1, .to = 2, .period = 1}});
}

Plan::Spec OnOneDevice(int64_t bytes) {
  Plan::Spec spec = SpecOf({Whole(bytes, "x=1 on a.0", "x=1 on a.0")});
  if (bytes > 0) spec.copies.push_back({.slice_class = 0, .device = 0});
  return spec;
}

Plan::Spec ConvertedOnOneDevice(int64_t elements) {
  TensorText tensor = Whole(elements, "x=1 on a.0", "x=1 on a.0");
  tensor.type = DataType::kF32;
  tensor.sent_as = DataType::kF16;
  Plan::Spec spec = SpecOf({tensor});
  spec.copies.push_back({.slice_class = 0, .device = 0});
  return spec;
}

Plan::Spec QuantizedOnOneDevice() {
  Plan::Spec spec = SpecOf({{.shape = "[300, 200]",
                             .source_mesh = "x=1 on a.0",
                             .source = "[-, -]",
                             .destination_mesh = "x=1 on a.0",
                             .destination = "[-, -]",
                             .type = DataType::kBF16,
                             .sent_as = DataType::kF8E4M3}});
  spec.copies = {{.slice_class = 0, .device = 0}, {.slice_class = 1, .device = 0}};
  return spec;
}

Plan::Spec ManyTensors(const std::vector<SentTensor>& tensors) {
  std::vector<TensorText> texts;
  for (const SentTensor& tensor : tensors) {
    TensorText& text = texts.emplace_back(Whole(tensor.elements, "x=1 on a.0", "x=1 on b.0"));
    text.type = tensor.is_converted ? DataType::kF32 : DataType::kF16;
    if (tensor.is_converted) text.sent_as = DataType::kF16;
  }
  Plan::Spec spec = SpecOf(texts);
  for (ClassIndex i = 0; i < std::ssize(spec.slicing->classes()); ++i) {
    AddRelay(i, {.from = 0, .to = 1}, spec);
  }
  PlaceHopsInPlanOrder(spec);
  return spec;
}

Plan::Spec ExchangeBesideCopies(int64_t steps, int64_t copied_bytes) {
  const int64_t bytes = steps * Plan::kLeafBytes;
  Plan::Spec spec =
      SpecOf({Whole(bytes, "x=1 on a.0", "x=1 on b.0"), Whole(bytes, "x=1 on b.0", "x=1 on a.0"),
              Whole(copied_bytes, "x=1 on a.0", "x=1 on a.0"),
              Whole(copied_bytes, "x=1 on b.0", "x=1 on b.0")});
  AddRelay(0, {.from = 0, .to = 1}, spec);
  AddRelay(1, {.from = 1, .to = 0}, spec);
  spec.copies = {{.slice_class = 2, .device = 0}, {.slice_class = 3, .device = 1}};
  spec.periods = static_cast<int32_t>(steps);
  return spec;
}

Plan Made(Plan::Spec spec) {
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

}  // namespace crossmesh
