#include "common/rpc/call_observer.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/status_codec.h"

#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// "/crossmesh.v1.MeshService/GetMesh" in its two parts.
std::pair<absl::string_view, absl::string_view> SplitMethod(absl::string_view path) {
  absl::ConsumePrefix(&path, "/");
  const size_t slash = path.find('/');
  if (slash == absl::string_view::npos) return {path, ""};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

absl::Status Malformed(absl::string_view path) {
  return absl::InvalidArgumentError(
      absl::StrCat("request of ", path, ": expected one message of its type, found other bytes"));
}

// Lives as long as its call. gRPC's calls come one after the other.
class CallObserver final : public grpc::experimental::Interceptor {
 public:
  CallObserver(RpcMetrics* metrics, const std::function<absl::Status()>& may_answer,
               const ServerRpcInfo& call)
      : metrics_(metrics),
        may_answer_(may_answer),
        path_(call.method()),
        has_one_request_(call.type() == ServerRpcInfo::Type::UNARY ||
                         call.type() == ServerRpcInfo::Type::SERVER_STREAMING),
        start_(clock_.Monotonic()) {
    const auto [service, method] = SplitMethod(path_);
    if (metrics_ != nullptr) metrics_->CallStarted(service, method);
  }

  // Here rather than at PRE_SEND_STATUS, which a call whose client went away does not reach.
  ~CallObserver() override {
    const absl::Duration duration = end_.value_or(clock_.Monotonic()) - start_;
    const auto [service, method] = SplitMethod(path_);
    if (metrics_ != nullptr) metrics_->CallEnded(service, method, status_.code(), duration);
    Log(absl::StartsWith(service, "grpc.") ? LogLevel::kDebug : LogLevel::kInfo, "rpc",
        {{"method", path_},
         {"code", absl::StatusCodeToString(status_.code())},
         {"message", status_.message()},
         {"duration_ms", absl::ToDoubleMilliseconds(duration)}});
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      malformed_ = has_one_request_ && methods->GetRecvMessage() == nullptr;
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // gRPC says that the method is not there, without a message.
      if (malformed_) methods->ModifySendStatus(ToGrpcStatus(Malformed(path_)));
      if (const absl::Status may = MayAnswer(); !may.ok()) {
        methods->ModifySendStatus(ToGrpcStatus(may));
      }
      status_ = FromGrpcStatus(methods->GetSendStatus());
      end_ = clock_.Monotonic();
    }
    methods->Proceed();
  }

 private:
  absl::Status MayAnswer() const {
    if (!may_answer_ || absl::StartsWith(path_, "/grpc.")) return absl::OkStatus();
    return may_answer_();
  }

  RpcMetrics* const metrics_;
  const std::function<absl::Status()>& may_answer_;
  const RealClock clock_;
  const std::string path_;
  // Of a stream of requests a malformed one and its end look alike.
  const bool has_one_request_;
  const absl::Duration start_;
  bool malformed_ = false;
  absl::Status status_ = absl::CancelledError("the client is gone");
  std::optional<absl::Duration> end_;
};

class CallObserverFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallObserverFactory(RpcMetrics* metrics, std::function<absl::Status()> may_answer)
      : metrics_(metrics), may_answer_(std::move(may_answer)) {}

  // gRPC takes ownership.
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new CallObserver(metrics_, may_answer_, *info);
  }

 private:
  RpcMetrics* const metrics_;
  const std::function<absl::Status()> may_answer_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallObserver(
    RpcMetrics* metrics, std::function<absl::Status()> may_answer) {
  return std::make_unique<CallObserverFactory>(metrics, std::move(may_answer));
}

}  // namespace crossmesh
