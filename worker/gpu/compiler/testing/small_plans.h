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

// Proven. Aborts when it is wrong.
Plan Made(Plan::Spec spec);

}  // namespace crossmesh
