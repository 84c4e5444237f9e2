#pragma once

#include "controller/dispatch/worker_gateway.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

// Workers that a test speaks for. Confined to the test's thread.
class FakeWorkerGateway final : public WorkerGateway {
 public:
  // One call, as the worker sees it.
  struct Call {
    std::string address;
    TaskStart start;
    TaskListener* listener = nullptr;
    std::vector<std::string> heard;  // "cancel WHY", "commit 1,2", "abandon 1", "lost W", "ack"
    bool dropped = false;            // its TaskCall is gone

    void Accept() const { listener->OnAccepted(); }
    // The last word of a call; said for all that are open when the gateway goes.
    void End(const absl::Status& status) {
      TaskListener* told = std::exchange(listener, nullptr);
      if (told != nullptr) told->OnCallEnded(status);
    }
    // All destination devices of the task are done.
    void Finish(const TensorTable& tensors) const {
      for (const DeviceRank device : start.part->spec().devices) {
        if (tensors.replica_of(device) >= 0) {
          listener->OnDeviceDone(device, absl::OkStatus());
        }
      }
    }
    void Report(const absl::Status& status, const std::vector<std::string>& lost_peers = {},
                const std::vector<DeviceRank>& broken_devices = {}) const {
      listener->OnReport({.status = status,
                          .lost_peers = lost_peers,
                          .broken_devices = broken_devices,
                          .figures = {.received_bytes = 10}});
    }
  };

  ~FakeWorkerGateway() override {
    for (const std::shared_ptr<Call>& call : calls) call->End(absl::OkStatus());
  }

  std::unique_ptr<TaskCall> Execute(const std::string& worker_address, const TaskStart& start,
                                    TaskListener& listener) override {
    calls.push_back(std::make_shared<Call>(Call{worker_address, start, &listener, {}}));
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
  class Said final : public TaskCall {
   public:
    explicit Said(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Said() override { call_->dropped = true; }
    void Cancel(const std::string& reason) override { Hear(absl::StrCat("cancel ", reason)); }
    void Resolve(const std::vector<DeviceRank>& devices, bool commit) override {
      Hear(absl::StrCat(commit ? "commit " : "abandon ", absl::StrJoin(devices, ",")));
    }
    void PeerLost(const std::string& worker, const std::string& /*reason*/) override {
      Hear(absl::StrCat("lost ", worker));
    }
    void Acknowledge() override { Hear("ack"); }

   private:
    void Hear(std::string word) { call_->heard.push_back(std::move(word)); }
    const std::shared_ptr<Call> call_;
  };
};

}  // namespace crossmesh
