#pragma once

#include "common/plan/plan.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// Plans that can be followed by hand, in chunks of one leaf. They may be changed before they are
// made.

// One relay of so many bytes, due all the time, from a.0 (rank 0) by these hops to b.0 and b.1
// (ranks 1 and 2), which both need them; as many periods as leaves.
Plan::Spec ToTwoDevices(int64_t bytes, std::vector<Hop> hops);
// The same from a.0 to b.0 and on to b.1.
Plan::Spec ThroughTwoHops(int64_t bytes);
// So many bytes that a.0 holds and needs.
Plan::Spec OnOneDevice(int64_t bytes);
// So many elements that a.0 holds as F32 and needs as F16.
Plan::Spec ConvertedOnOneDevice(int64_t elements);
// A matrix of 300 x 200 elements that a.0 holds as BF16 and needs as F8_E4M3, with its scales.
Plan::Spec QuantizedOnOneDevice();

// What a.0 (rank 0) sends to b.0 (rank 1), of one type, or converted from F32 to F16 on the way.
struct SentTensor {
  int64_t elements = 0;
  bool is_converted = false;
};
// All of them at the same time, each from the first step on.
Plan::Spec ManyTensors(const std::vector<SentTensor>& tensors);
// Each of a.0 and b.0 sends the other a leaf in each of some steps, and holds and needs so many
// bytes.
Plan::Spec ExchangeBesideCopies(int64_t steps, int64_t copied_bytes);

// Proven. Aborts when it is wrong.
Plan Made(Plan::Spec spec);

}  // namespace crossmesh
