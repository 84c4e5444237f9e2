// What every implementation of Communicator refuses, in the same words.

#pragma once

#include "worker/gpu/communicators/communicator.h"

#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// InvalidArgument for a peer that is none of `size` ranks, no address, or no bytes.
absl::Status CheckMessages(std::span<const RankMessage> sends,
                           std::span<const RankMessage> receives, int size);

// InvalidArgument for a root that is none of `size` ranks, no address where `rank` has one, no
// elements, or elements that are not reduced.
absl::Status CheckCollective(const Collective& collective, int rank, int size);

// InvalidArgument for a rank that is none of `size`, or in two groups.
absl::Status CheckGroups(const RankGroups& groups, int size);

// Whether a collective computes, or only moves.
bool Reduces(CollectiveKind kind);

}  // namespace crossmesh
