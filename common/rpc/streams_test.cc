#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/deadline.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "common/testing/status_matchers.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "crossmesh/v1/manifest_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Less than what the runner of tests gives a test, which would not say what was missing.
constexpr absl::Duration kPatience = absl::Seconds(60);

// A value that a test waits for.
template <typename T>
class Box {
 public:
  void Set(T value) {
    MutexLock lock(mutex_);
    value_ = std::move(value);
    changed_.SignalAll();
  }
  T Take() {
    MutexLock lock(mutex_);
    while (!value_.has_value()) {
      const bool late = changed_.WaitFor(mutex_, kPatience);
      CHECK(!late || value_.has_value()) << "waited " << kPatience << " in vain for a value";
    }
    return *std::exchange(value_, std::nullopt);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

class Watch final : public ServerWriteStream<v1::WatchOperationResponse> {
 public:
  explicit Watch(Box<bool>& ended) : ended_(ended) {}

  bool SendMoved(int64_t bytes, size_t padding = 0) {
    v1::WatchOperationResponse response;
    response.mutable_operation()->set_moved_bytes(bytes);
    response.mutable_operation()->set_error(std::string(padding, 'x'));
    return Send(std::move(response));
  }

 private:
  void OnEnd() override { ended_.Set(true); }
  Box<bool>& ended_;
};

class Watches final : public v1::OperationService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::WatchOperationResponse>* WatchOperation(
      grpc::CallbackServerContext* /*context*/,
      const v1::WatchOperationRequest* /*request*/) override {
    auto watch = std::make_shared<Watch>(ended);
    started.Set(watch);
    return Watch::Serve(std::move(watch));
  }

  Box<std::shared_ptr<Watch>> started;
  Box<bool> ended;
};

// Sends every reason to cancel back, and ends when asked to by the reason "end", or by the client.
class Echo final : public ServerBidiStream<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  explicit Echo(std::atomic<int>& ended) : ended_(ended) {}

 private:
  void OnMessage(v1::ExecuteRequest request) override {
    if (request.cancel().reason() == "end") End(absl::AbortedError("asked to"));
    v1::ExecuteResponse response;
    response.mutable_report()->set_message(request.cancel().reason());
    Send(std::move(response));
  }
  void OnMessagesEnd() override { End(absl::OkStatus()); }
  void OnEnd() override { ++ended_; }

  std::atomic<int>& ended_;
};

// Reads nothing of what the client sends.
class Deaf final : public grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse> {
 private:
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }
};

class Echoes final : public v1::ExecutionService::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* /*context*/) override {
    ++begun;
    if (deaf) return new Deaf;
    return Echo::Serve(std::make_shared<Echo>(ended));
  }

  std::atomic<bool> deaf = false;
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
};

class Upload final : public ServerReadStream<v1::PutManifestRequest, v1::PutManifestResponse> {
 private:
  absl::Status OnMessage(v1::PutManifestRequest request) override {
    if (request.name() == "bad") return absl::InvalidArgumentError("manifest \"bad\"");
    tensors_ += request.tensors_size();
    return absl::OkStatus();
  }
  absl::Status OnMessagesEnd(v1::PutManifestResponse& response) override {
    response.set_tensors(tensors_);
    return absl::OkStatus();
  }

  int64_t tensors_ = 0;
};

class Uploads final : public v1::ManifestService::CallbackService {
 public:
  grpc::ServerReadReactor<v1::PutManifestRequest>* PutManifest(
      grpc::CallbackServerContext* /*context*/, v1::PutManifestResponse* response) override {
    return Upload::Serve(std::make_unique<Upload>(), response);
  }
};

class Call final : public ClientBidiStream<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  bool SendText(const std::string& text) {
    v1::ExecuteRequest request;
    request.mutable_cancel()->set_reason(text);
    return Send(std::move(request));
  }
  std::vector<std::string> texts() {
    MutexLock lock(mutex_);
    return texts_;
  }
  absl::Status WaitForEnd() { return end_.Take(); }
  void WaitForTexts(size_t count) {
    MutexLock lock(mutex_);
    while (texts_.size() < count) {
      const bool late = more_.WaitFor(mutex_, kPatience);
      CHECK(!late || texts_.size() >= count)
          << "waited " << kPatience << " in vain for text " << count << "; found " << texts_.size();
    }
  }

 private:
  void OnMessage(v1::ExecuteResponse response) override {
    MutexLock lock(mutex_);
    texts_.push_back(response.report().message());
    more_.SignalAll();
  }
  void OnEnd(const absl::Status& status) override { end_.Set(status); }

  Mutex mutex_;
  CondVar more_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  Box<absl::Status> end_;
};

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() {
    auto server = RpcServer::Start(
        {.addresses = {"127.0.0.1:0"}, .services = {&watches_, &echoes_, &uploads_}});
    CHECK_OK(server);
    server_ = *std::move(server);
    auto channel = BuildRpcChannel({.address = server_->addresses()[0], .session = true});
    CHECK_OK(channel);
    channel_ = *std::move(channel);
    watch_stub_ = v1::OperationService::NewStub(channel_);
    echo_stub_ = v1::ExecutionService::NewStub(channel_);
  }

  std::shared_ptr<Call> StartCall() {
    auto call = std::make_shared<Call>();
    Call::Start(call, [&](grpc::ClientContext* context, Call::Reactor* reactor) {
      echo_stub_->async()->Execute(context, reactor);
    });
    return call;
  }

  Watches watches_;
  Echoes echoes_;
  Uploads uploads_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::OperationService::Stub> watch_stub_;
  std::unique_ptr<v1::ExecutionService::Stub> echo_stub_;
};

TEST_F(StreamsTest, AServerSendsInOrderAndEndsAfterTheLast) {
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = watch_stub_->WatchOperation(&context, {});
  const std::shared_ptr<Watch> watch = watches_.started.Take();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(watch->SendMoved(i));
  watch->End(absl::NotFoundError("operation op-1"));
  EXPECT_FALSE(watch->SendMoved(100));

  v1::WatchOperationResponse response;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.operation().moved_bytes(), i);
  }
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_THAT(FromGrpcStatus(reader->Finish()),
              StatusIs(absl::StatusCode::kNotFound, "operation op-1"));
  watches_.ended.Take();
}

TEST_F(StreamsTest, ASlowReaderIsCutOffAndLearnsWhy) {
  grpc::ClientContext context;
  SetDeadline(context);
  auto reader = watch_stub_->WatchOperation(&context, {});
  const std::shared_ptr<Watch> watch = watches_.started.Take();
  // Large enough that the connection's own buffers fill up.
  int64_t sent = 0;
  while (sent < 10'000 && watch->SendMoved(sent, 256 << 10)) ++sent;
  ASSERT_LT(sent, 10'000);

  v1::WatchOperationResponse response;
  int64_t read = 0;
  while (reader->Read(&response)) EXPECT_EQ(response.operation().moved_bytes(), read++);
  EXPECT_LE(read, sent - static_cast<int64_t>(OutgoingQueue<int>::kMessagesMax) + 1);
  EXPECT_THAT(FromGrpcStatus(reader->Finish()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("256 messages behind")));
}

TEST_F(StreamsTest, AServerLearnsThatTheClientIsGone) {
  grpc::ClientContext context;
  auto reader = watch_stub_->WatchOperation(&context, {});
  const std::shared_ptr<Watch> watch = watches_.started.Take();
  context.TryCancel();
  watches_.ended.Take();
  EXPECT_FALSE(watch->SendMoved(1));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(StreamsTest, BothSidesSendFromManyThreads) {
  const std::shared_ptr<Call> call = StartCall();
  std::vector<Thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back("sender", [&call, t] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(call->SendText(absl::StrCat(t, " ", i)));
    });
  }
  threads.clear();
  call->WaitForTexts(200);
  call->CloseWrites();
  EXPECT_OK(call->WaitForEnd());

  std::array<int, 4> next = {};
  for (const std::string& text : call->texts()) {
    const int sender = text[0] - '0';
    EXPECT_EQ(text, absl::StrCat(sender, " ", next[sender]++));
  }
}

TEST_F(StreamsTest, AClientMaySendWhileAndAfterTheServerEndsTheCall) {
  for (int round = 0; round < 50; ++round) {
    const std::shared_ptr<Call> call = StartCall();
    std::atomic<bool> stop = false;
    Thread sender("sender", [&] {
      while (!stop) {
        call->SendText("more");
        std::this_thread::yield();
      }
    });
    call->SendText("end");
    const absl::Status status = call->WaitForEnd();
    EXPECT_THAT(status, testing::AnyOf(StatusIs(absl::StatusCode::kAborted, "asked to"),
                                       StatusIs(absl::StatusCode::kCancelled)));
    stop = true;
    sender.Join();
    EXPECT_FALSE(call->SendText("late"));
    call->CloseWrites();
    call->Cancel();
  }
}

TEST_F(StreamsTest, ACallThatNothingKeepsEndsByItself) {
  StartCall()->CloseWrites();
  const std::shared_ptr<Call> kept = StartCall();
  kept->SendText("a");
  kept->CloseWrites();
  EXPECT_OK(kept->WaitForEnd());
  EXPECT_THAT(kept->texts(), ElementsAre("a"));
  server_->Shutdown(absl::Seconds(10));
  EXPECT_EQ(echoes_.ended, 2);
}

TEST_F(StreamsTest, AClientCancelsACallWhoseServerIsTooSlow) {
  echoes_.deaf = true;
  const std::shared_ptr<Call> call = StartCall();
  // Large enough that the connection's own buffers fill up.
  const std::string text(256 << 10, 'x');
  int sent = 0;
  while (sent < 10'000 && call->SendText(text)) ++sent;
  EXPECT_LT(sent, 10'000);
  EXPECT_THAT(call->WaitForEnd(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(StreamsTest, OneCallMoreThanAConnectionMayHaveWaitsForAnotherToEnd) {
  constexpr int kMax = RpcServer::kStreamsPerConnectionMax;
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < kMax + 1; ++i) {
    calls.push_back(StartCall());
    calls.back()->SendText("a");
    // Calls keep their order from when there is a connection.
    if (i == 0) calls[0]->WaitForTexts(1);
  }
  for (int i = 1; i < kMax; ++i) calls[i]->WaitForTexts(1);
  // After this answer the server has read what the client wrote before.
  calls[0]->SendText("b");
  calls[0]->WaitForTexts(2);
  EXPECT_EQ(echoes_.begun, kMax);
  EXPECT_THAT(calls[kMax]->texts(), testing::IsEmpty());
  calls[0]->CloseWrites();
  calls[kMax]->WaitForTexts(1);
  for (const std::shared_ptr<Call>& call : calls) call->CloseWrites();
  for (const std::shared_ptr<Call>& call : calls) EXPECT_OK(call->WaitForEnd());
}

TEST_F(StreamsTest, CancelEndsACall) {
  const std::shared_ptr<Call> call = StartCall();
  call->SendText("a");
  call->WaitForTexts(1);
  call->Cancel();
  EXPECT_THAT(call->WaitForEnd(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(StreamsTest, ShutdownEndsOpenStreams) {
  const std::shared_ptr<Call> call = StartCall();
  call->SendText("a");
  call->WaitForTexts(1);
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(call->WaitForEnd().ok());
  EXPECT_EQ(echoes_.ended, 1);
}

TEST_F(StreamsTest, AnUploadIsAnsweredAtItsEnd) {
  auto stub = v1::ManifestService::NewStub(channel_);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::PutManifestResponse response;
  auto writer = stub->PutManifest(&context, &response);
  v1::PutManifestRequest request;
  request.add_tensors();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(writer->Write(request));
  writer->WritesDone();
  EXPECT_OK(FromGrpcStatus(writer->Finish()));
  EXPECT_EQ(response.tensors(), 3);
}

TEST_F(StreamsTest, ABadMessageEndsAnUpload) {
  auto stub = v1::ManifestService::NewStub(channel_);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::PutManifestResponse response;
  auto writer = stub->PutManifest(&context, &response);
  v1::PutManifestRequest request;
  request.set_name("bad");
  writer->Write(request);
  EXPECT_THAT(FromGrpcStatus(writer->Finish()),
              StatusIs(absl::StatusCode::kInvalidArgument, "manifest \"bad\""));
}

}  // namespace
}  // namespace crossmesh
