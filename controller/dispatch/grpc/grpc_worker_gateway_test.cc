#include "controller/dispatch/grpc/grpc_worker_gateway.h"

#include "controller/dispatch/grpc/worker_channels.h"

#include <memory>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// An owner listens with what keeps the call: neither would ever go if the listener stayed.
TEST(GrpcWorkerGatewayTest, AListenerIsGoneWhenItHasHeardTheEnd) {
  WorkerChannels channels(true);
  GrpcTaskGateway gateway(channels);
  absl::Status end;
  const auto owner = std::make_shared<absl::Status*>(&end);
  const auto call = gateway.Open({.address = "unix:/nobody/listens.sock", .body = nullptr},
                                 {.on_message = [owner](const v1::ExecuteResponse&) {},
                                  .on_end = [owner](const absl::Status& s) { **owner = s; }});
  gateway.Stop();
  EXPECT_FALSE(end.ok());
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace crossmesh
