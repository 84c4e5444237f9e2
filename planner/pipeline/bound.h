#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/transfer_model.h"

#include <array>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// Why no schedule of a pipeline can end sooner.
enum class PipelineBoundKind : uint8_t {
  kWork,     // a rank has so much to compute
  kStartup,  // a rank has no more to compute before the first gradient comes back
  kRamps,    // a rank has no more to compute while the pipeline fills and while it empties
  kWindow,   // a rank has memory for so few microbatches, and each takes a round trip
  kPorts,    // a port has so much to carry; a rank under kBlocking
};

inline constexpr std::array<PipelineBoundKind, 5> kAllPipelineBoundKinds = {
    PipelineBoundKind::kWork, PipelineBoundKind::kStartup, PipelineBoundKind::kRamps,
    PipelineBoundKind::kWindow, PipelineBoundKind::kPorts};

// "work", "startup", "ramps", "window", "ports".
absl::string_view PipelineBoundKindName(PipelineBoundKind kind);

struct PipelineBound {
  struct Term {
    double seconds = 0;  // 0: it says nothing
    std::string place;   // "rank 3", "stage 2", "transfer 1F2": the activations from stage 1 to 2

    friend bool operator==(const Term&, const Term&) = default;
  };

  std::array<Term, kAllPipelineBoundKinds.size()> terms;  // by kind

  const Term& at(PipelineBoundKind kind) const { return terms[static_cast<size_t>(kind)]; }
  PipelineBoundKind kind() const;  // which one binds
  double seconds() const { return at(kind()).seconds; }
};

// The least time of an iteration of any schedule whose backward ops have that form, with every
// rank's memory as it is. Each op begins after the shortest way from the first stages to it, and
// the shortest way from it to the end is still to come. A memory holds as many microbatches of a
// stage as fit beside what is static and what transfers set aside; a microbatch that does not fit
// waits for the round trip of another. Of stages that share a rank the ramps are those of the rank,
// and round trips fill its memory; startup is part of these ramps. Of microbatches of several
// sizes, work counts as it is, ways and windows as of the smallest. Every forward op may be in the
// pair that saves most.
//
// InvalidArgument: no microbatches; what Validate finds. ResourceExhausted, with the least bytes
// that could do, when a rank has no room for one microbatch. Cost: linear in stages and edges; of
// ranks with several stages in ops, times the logarithm, and the stages of a rank.
absl::StatusOr<PipelineBound> ComputePipelineBound(const PipelineProfile& profile,
                                                   int32_t microbatches, BackwardForm form,
                                                   TransferModel model = TransferModel::kLatency);

// The same of the longest time from the begin to the end of one rank, whatever the transfers share:
// nothing is said of the ways to it and from it, since a rank may begin late.
absl::StatusOr<PipelineBound> ComputeSpanBound(const PipelineProfile& profile, int32_t microbatches,
                                               BackwardForm form);

}  // namespace crossmesh
