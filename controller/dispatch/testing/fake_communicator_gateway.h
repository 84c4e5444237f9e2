#pragma once

#include "controller/dispatch/communicator_gateway.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

// Workers whose GPUs do what they are told, but where a test says otherwise. Confined to the test's
// thread.
class FakeCommunicatorGateway final : public CommunicatorGateway {
 public:
  // What a worker answers an order with, "preflight", "mint", "create", "measure", "destroy" or
  // "stop", other than OK.
  void Refuse(const std::string& address, const std::string& order, const absl::Status& status) {
    refusals_[{address, order}] = status;
  }
  // Orders of this kind are not answered until the test says so.
  void Hold(const std::string& address, const std::string& order) {
    holds_.emplace_back(address, order);
  }
  // The order that is held longest, with OK or the refusal that holds now.
  void AnswerOldest() {
    auto answer = std::move(held_.front());
    held_.pop_front();
    answer();
  }
  // No order is refused or held from now on.
  void Allow() {
    holds_.clear();
    refusals_.clear();
  }
  void SetVersion(const std::string& address, int version) { versions_[address] = version; }

  v1::MeasureGpuResponse figures;  // of each GPU
  // In order: "at-a create relay@7[GPU-a#1,GPU-b#1] ticket 1".
  std::vector<std::string> heard;
  // Those of one kind, "create".
  std::vector<std::string> Heard(const std::string& order) const {
    std::vector<std::string> found;
    for (const std::string& call : heard) {
      if (absl::StrContains(call, absl::StrCat(" ", order, " "))) found.push_back(call);
    }
    return found;
  }

  void GetPreflight(const std::string& address, const CommunicatorRank& at,
                    OnPreflight on_preflight) override {
    heard.push_back(absl::StrCat(address, " preflight ", at.key.ToString()));
    const int version = versions_.contains(address) ? versions_[address] : 23007;
    const PreflightReport report = {
        .rank = at.key.ranks[at.rank], .nccl_version = version, .free_bytes = 1000};
    Answer<absl::StatusOr<PreflightReport>>(address, "preflight", report, std::move(on_preflight));
  }
  void MintId(const std::string& address, const CommunicatorRank& at, OnMinted on_minted) override {
    heard.push_back(absl::StrCat(address, " mint ", at.key.ToString()));
    Answer<absl::StatusOr<std::string>>(address, "mint", std::string("id"), std::move(on_minted));
  }
  void Create(const std::string& address, const CommunicatorCreation& creation,
              OnCreated on_created) override {
    heard.push_back(
        absl::StrCat(address, " create ", creation.at.key.ToString(), " ticket ", creation.ticket));
    Answer<absl::StatusOr<int64_t>>(address, "create", kBytes, std::move(on_created));
  }
  void Measure(const std::string& address, const CommunicatorRank& at, absl::Duration timeout,
               OnMeasured on_measured) override {
    heard.push_back(absl::StrCat(address, " measure ", at.key.ToString(), " within ",
                                 absl::FormatDuration(timeout)));
    Answer<absl::StatusOr<v1::MeasureGpuResponse>>(address, "measure", figures,
                                                   std::move(on_measured));
  }
  void Destroy(const std::string& address, const CommunicatorDestruction& destruction,
               OnGone on_gone) override {
    heard.push_back(absl::StrCat(address, " destroy ", destruction.at.key.ToString(), " ticket ",
                                 destruction.ticket));
    Answer<absl::Status>(address, "destroy", absl::OkStatus(), std::move(on_gone));
  }
  void Stop(const std::string& address, const CommunicatorRank& at, const std::string& reason,
            OnGone on_gone) override {
    heard.push_back(absl::StrCat(address, " stop ", at.key.ToString(), " ", reason));
    Answer<absl::Status>(address, "stop", absl::OkStatus(), std::move(on_gone));
  }

 private:
  using Order = std::pair<std::string, std::string>;  // address and kind
  static constexpr int64_t kBytes = 40;               // of each communicator

  template <typename Result, typename Value, typename OnResult>
  void Answer(const std::string& address, const std::string& order, Value value,
              OnResult on_result) {
    const bool is_held = std::ranges::find(holds_, Order(address, order)) != holds_.end();
    auto answer = [this, address, order, value = std::move(value),
                   on_result = std::move(on_result)]() mutable {
      const auto refusal = refusals_.find({address, order});
      on_result(refusal == refusals_.end() ? Result(std::move(value)) : Result(refusal->second));
    };
    if (!is_held) return answer();
    held_.push_back(std::move(answer));
  }

  std::map<Order, absl::Status> refusals_;
  std::vector<Order> holds_;
  std::deque<absl::AnyInvocable<void()>> held_;
  std::map<std::string, int> versions_;
};

}  // namespace crossmesh
