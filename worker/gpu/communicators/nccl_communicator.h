#pragma once

#include "worker/gpu/communicators/communicator.h"
#include "worker/gpu/communicators/rank_splits.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class M2nRuntime;

// A new id, for all ranks of one communicator to be made with. The process that mints it listens
// for the others from then on, so it is the one that is to be rank 0.
absl::StatusOr<std::string> MintId(const NcclApi& nccl);

// Thread blocks that may run at a time for a communicator; 0: as NCCL thinks best.
struct CtaLimits {
  int min = 0;
  int max = 0;
};

// What is to be ended of a communicator, all of it once.
struct NcclHandles {
  ncclComm_t whole = nullptr;
  std::vector<ncclComm_t> parts;  // that were split from it, to end before it
  // Where NCCL may have put one more by the time when the whole was aborted; null: nowhere.
  const ncclComm_t* unfinished = nullptr;
};
// ncclCommDestroy or ncclCommAbort of all; the first error. Either may block.
absl::Status DestroyAll(const NcclApi& nccl, const NcclHandles& handles);
absl::Status AbortAll(const NcclApi& nccl, const NcclHandles& handles);

// A rank of a communicator of NCCL, with the parts that were split from it, that never blocks. All
// of them have one life: one that fails fails the whole. It is in progress from the start, until
// all ranks have come; only MintId's process may be rank 0. Errors have the communicator's name and
// what NCCL said. Confined to the thread that issues all work of its GPU, whose context is current.
class NcclCommunicator final : public Communicator {
 public:
  struct Options {
    std::string name;  // for errors and NCCL's own logs
    std::string id;    // of MintId
    int rank = 0;
    int size = 1;
    CtaLimits ctas = {};
    M2nRuntime* m2n = nullptr;  // of this process; null: none. Must outlive the communicator
  };

  // InvalidArgument when the id is none, or the rank. The ranks' NCCL may refuse at once, too.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Begin(const NcclApi& nccl,
                                                                 Options options);
  // Aborts it, which may block, unless it was released.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  absl::Status Exchange(std::span<const RankMessage> sends, std::span<const RankMessage> receives,
                        CUstream stream) override;
  absl::Status PerformAll(std::span<const Collective> collectives, CUstream stream) override;
  absl::Status Split(const RankGroups& groups) override;
  absl::Status PerformAllIn(const RankGroups& groups, std::span<const Collective> collectives,
                            CUstream stream) override;
  absl::Status Reshard(std::span<const M2nTensor> tensors, CUstream stream) override;
  absl::StatusOr<Progress> Poll() override;

  // Makes memory of ncclMemAlloc known to NCCL, which then moves it without copies of its own. Done
  // at once. All ranks register what they exchange, or none.
  absl::Status Register(CUdeviceptr address, int64_t bytes);
  // Of all that was registered; when all work is done, and before the end.
  absl::Status Deregister();

  // Waits for all work of all ranks; afterwards there is only the end. In progress like a call.
  absl::Status Finalize();
  // Stops all work of this rank, the streams' too; afterwards there is only the end. In progress
  // like a call. FailedPrecondition once M2N has used it: then there is only the abort.
  absl::Status Revoke();

  // What it takes of the GPU's memory, as NCCL counts it. Grows with the first message to or from a
  // peer. Nothing while a call is in progress, and where NCCL does not tell.
  std::optional<int64_t> MemoryBytes() const;

  const std::string& name() const { return options_.name; }
  const NcclApi& nccl() const { return nccl_; }
  // Whether a thread of M2N is inside a call with it.
  bool is_in_m2n() const { return is_in_m2n_; }
  // Looks whether it still is, after Release.
  void PollM2n();
  // Hands over what ends it: DestroyAll or AbortAll, to be called once. Afterwards every call is
  // FailedPrecondition. The object must outlive that call.
  NcclHandles Release();
  // What was finalized to make room for another split, to be destroyed; once.
  std::vector<ncclComm_t> TakeRetired() { return std::exchange(retired_, {}); }

 private:
  NcclCommunicator(const NcclApi& nccl, Options options)
      : nccl_(nccl), options_(std::move(options)) {}

  // That `call` may be made now.
  absl::Status CheckIdle(absl::string_view call) const;
  absl::Status CheckStream(CUstream stream) const;
  absl::Status About(const absl::Status& status) const;
  // The result of a call, of which an error is the communicator's failure.
  absl::Status Keep(ncclResult_t result, absl::string_view call);
  // After a call that goes on: it is in progress, or the communicator has failed.
  absl::Status Begun(ncclResult_t result, absl::string_view call);
  // The call of M2N that is under way: in progress, or what Begun or the next call says.
  absl::StatusOr<Progress> PollInM2n();
  // The state of one of its communicators: in progress, or the failure.
  absl::StatusOr<Progress> PollOne(ncclComm_t handle, absl::string_view part);
  absl::Status BeginSplit(RankGroups groups);
  absl::Status FinalizeAll();
  absl::Status CallAll(std::span<const Collective> collectives, ncclComm_t handle, CUstream stream);

  const NcclApi& nccl_;
  const Options options_;
  ncclComm_t handle_ = nullptr;         // null once it was released
  absl::string_view call_in_progress_;  // of NCCL, a literal; empty when idle
  absl::Status failure_;
  bool is_in_m2n_ = false;
  bool is_finalizing_ = false;  // once M2N has given back what it kept
  std::vector<void*> registrations_;
  RankSplits splits_;
  bool is_splitting_ = false;             // the last of them
  std::optional<RankGroups> next_split_;  // when the oldest one has been finalized
  std::vector<ncclComm_t> retired_;
};

}  // namespace crossmesh
