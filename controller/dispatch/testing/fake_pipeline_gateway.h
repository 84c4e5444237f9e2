#pragma once

#include "controller/dispatch/pipeline_gateway.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// Workers that a test speaks for. Confined to the test's thread.
class FakePipelineGateway final : public PipelineGateway {
 public:
  // One call, as the worker sees it.
  struct Call {
    std::string address;
    v1::RunProgramRequest::Start start;
    v1::PipelineProgram program;
    ProgramListener* listener = nullptr;
    std::vector<std::string> heard;  // "begin 0", "stop WHY", "cancel"
    bool dropped = false;            // its ProgramCall is gone

    void Accept() const { listener->OnAccepted(); }
    // The last word of a call; said for all that are open when the gateway goes.
    void End(const absl::Status& status) {
      ProgramListener* told = std::exchange(listener, nullptr);
      if (told != nullptr) told->OnCallEnded(status);
    }
  };

  ~FakePipelineGateway() override {
    for (const std::shared_ptr<Call>& call : calls) call->End(absl::OkStatus());
  }

  std::unique_ptr<ProgramCall> RunProgram(const std::string& worker_address,
                                          const v1::RunProgramRequest::Start& start,
                                          std::shared_ptr<const std::string> program,
                                          ProgramListener& listener) override {
    calls.push_back(std::make_shared<Call>(Call{.address = worker_address, .start = start}));
    calls.back()->program.ParseFromString(*program);
    calls.back()->listener = &listener;
    return std::make_unique<Said>(calls.back());
  }

  // The latest call to an address; null when there was none.
  Call* Latest(const std::string& address) const {
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      if ((*call)->address == address) return call->get();
    }
    return nullptr;
  }

  std::vector<std::shared_ptr<Call>> calls;

 private:
  class Said final : public ProgramCall {
   public:
    explicit Said(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Said() override { call_->dropped = true; }
    void BeginIteration(int64_t iteration) override {
      call_->heard.push_back(absl::StrCat("begin ", iteration));
    }
    void Stop(const std::string& reason) override {
      call_->heard.push_back(absl::StrCat("stop ", reason));
    }
    void Cancel() override { call_->heard.push_back("cancel"); }

   private:
    const std::shared_ptr<Call> call_;
  };
};

}  // namespace crossmesh
