#pragma once

#include <cstdint>

#include <absl/status/statusor.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

namespace crossmesh {

// About how many bytes of memory a message of this type takes that is parsed from these bytes,
// which are read but not parsed: four bytes may become hundreds. Never less than the message counts
// itself (SpaceUsedLong). Once it is more than `bytes_max` the rest is not read. InvalidArgument:
// the bytes are no message, or messages lie in each other more than a hundred deep. Cost: linear in
// the bytes.
absl::StatusOr<int64_t> FootprintOf(const google::protobuf::Descriptor& type,
                                    google::protobuf::io::ZeroCopyInputStream& bytes,
                                    int64_t bytes_max);

}  // namespace crossmesh
