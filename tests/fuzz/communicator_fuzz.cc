// A communicator's key and a rank's report, as they come from a controller or a worker: what is
// accepted is written as it was read.

#include "common/base/check.h"
#include "common/wire/communicator_codec.h"
#include "tests/fuzz/fuzz_input.h"

#include <cstddef>
#include <cstdint>

#include <google/protobuf/stubs/logging.h>

namespace crossmesh {
namespace {

template <typename Proto>
void ReadAndWrite(const uint8_t* data, size_t size) {
  Proto proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return;
  const auto value = FromProto(proto);
  if (!value.ok()) return;
  const auto again = FromProto(ToProto(*value));
  CHECK_OK(again);
  CHECK(*again == *value);
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  ReadAndWrite<v1::CommunicatorKey>(data, size);
  ReadAndWrite<v1::PreflightReport>(data, size);
}

}  // namespace crossmesh
