#pragma once

#include "common/base/strong_int.h"

namespace crossmesh {

using ByteCount = StrongCount<struct ByteCountTag>;

}  // namespace crossmesh
