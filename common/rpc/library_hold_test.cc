#include "common/rpc/library_hold.h"

#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"

#include <cstdlib>
#include <future>
#include <memory>
#include <utility>

#include <absl/synchronization/mutex.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct SaysWhenItIsGone {
  ~SaysWhenItIsGone() { is_gone.set_value(); }
  std::promise<void>& is_gone;
};

// Owns the channel of its call, and is owned by gRPC alone.
class LonelyCall final : public ClientBidiStream<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  LonelyCall(std::shared_ptr<grpc::Channel> channel, std::promise<void>& is_alone,
             std::promise<void>& is_gone)
      : last_{is_gone},
        stub_(v1::ExecutionService::NewStub(std::move(channel))),
        is_alone_(is_alone) {}

  static void Open(const std::shared_ptr<LonelyCall>& call) {
    Start(call, [&](grpc::ClientContext* context, Reactor* reactor) {
      call->stub_->async()->Execute(context, reactor);
    });
  }

 private:
  void OnMessage(v1::ExecuteResponse /*response*/) override {}
  void OnEnd(const absl::Status& /*status*/) override { is_alone_.get_future().wait(); }

  const SaysWhenItIsGone last_;  // after the stub
  const std::unique_ptr<v1::ExecutionService::Stub> stub_;
  std::promise<void>& is_alone_;
};

void LetGrpcDropTheLastChannel() {
  std::promise<void> is_alone;
  std::promise<void> is_gone;
  auto channel = BuildRpcChannel({.address = "unix:/nonexistent"});
  CHECK_OK(channel);
  LonelyCall::Open(std::make_shared<LonelyCall>(*std::move(channel), is_alone, is_gone));
  is_alone.set_value();
  is_gone.get_future().wait();
}

// What goes wrong without the hold is a double free, which the address sanitizer sees for sure.
[[noreturn]] void LetGrpcDropTheLastChannelOften() {
  for (int i = 0; i < 100; ++i) LetGrpcDropTheLastChannel();
  std::exit(0);
}

TEST(HoldRpcLibraryTest, AThreadOfGrpcMayDropTheLastChannel) {
  // In a process that has no other channel, and no server.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LetGrpcDropTheLastChannelOften(), testing::ExitedWithCode(0), "");
}

// As long as it looks, it ends the process at two orders of locking.
TEST(HoldRpcLibraryTest, AbseilDoesNotLookForDeadlocks) {
  HoldRpcLibrary();
  absl::Mutex a;
  absl::Mutex b;
  testing::internal::CaptureStderr();
  {
    const absl::MutexLock first(&a);
    const absl::MutexLock second(&b);
  }
  {
    const absl::MutexLock first(&b);
    const absl::MutexLock second(&a);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace crossmesh
