// A worker's part as it comes from a controller: what is decoded encodes to the same part, and is
// proven or refused.

#include "common/base/check.h"
#include "common/wire/worker_part_codec.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <google/protobuf/stubs/logging.h>

namespace crossmesh {

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  v1::WorkerPart proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return;
  absl::StatusOr<WorkerPart> part = FromProto(proto);
  if (!part.ok()) return;
  const v1::WorkerPart encoded = ToProto(*part);
  const absl::StatusOr<WorkerPart> again = FromProto(encoded);
  CHECK_OK(again);
  CHECK(again->digest() == part->digest());
  CHECK(ToProto(*again).SerializeAsString() == encoded.SerializeAsString());

  const auto prepared = PreparedPart::Create(std::make_shared<const WorkerPart>(*std::move(part)));
  if (prepared.ok()) CHECK((*prepared)->part().digest() == again->digest());
}

}  // namespace crossmesh
