#include "worker/gpu/executor/gpu_binding.h"

#include "common/base/digest_builder.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/executor/bound_leg.h"
#include "worker/gpu/executor/device_pointer.h"
#include "worker/gpu/executor/gpu_legs.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Adds them, ascending and each once.
void Join(std::span<const DeviceRank> added, const BoundLeg& of, std::vector<DeviceRank>& ranks) {
  for (const DeviceRank device : added) ranks.push_back(of.InWhole(device));
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
}

}  // namespace

absl::StatusOr<std::shared_ptr<GpuBinding>> GpuBinding::Create(Gpu& gpu, GpuLegs legs,
                                                               const GpuStream& upload) {
  std::shared_ptr<GpuBinding> binding(new GpuBinding(legs));
  BoundLists lists;
  binding->legs_.reserve(legs.legs.size());
  for (GpuLeg& leg : legs.legs) {
    ASSIGN_OR_RETURN(BoundLeg bound, BoundLeg::Create(gpu, std::move(leg), lists));
    binding->legs_.push_back(std::move(bound));
  }
  binding->ListPeers();
  RETURN_IF_ERROR(binding->Upload(gpu, lists, upload));
  return binding;
}

GpuBinding::GpuBinding(const GpuLegs& legs)
    : part_(legs.part),
      agreement_(legs.agreement),
      checksums_(legs.checksums),
      has_collectives_(legs.has_collectives),
      splits_(legs.splits),
      arrays_(legs.arrays) {}

GpuBinding::~GpuBinding() {
  // The copy reads pinned pages, which go with host_memory_. It waits for nothing, so it ends soon;
  // an error means that the GPU is lost, and with it the copy.
  if (uploaded_ == nullptr || !uploaded_->is_recorded()) return;
  for (absl::StatusOr<bool> is_done = false; is_done.ok() && !*is_done;) {
    is_done = uploaded_->IsDone();
  }
}

DeviceRank GpuBinding::device() const { return part_->part().spec().devices.front(); }

void GpuBinding::ListPeers() {
  for (const BoundLeg& leg : legs_) {
    Join(leg.compiled().peers(), leg, peers_.all);
    Join(leg.compiled().senders(), leg, peers_.senders);
    Join(leg.compiled().receivers(), leg, peers_.receivers);
  }
  if (!has_collectives_) return;
  // Agreements and splits are of all, whoever has part in which leg.
  peers_.all.clear();
  const auto devices = static_cast<DeviceRank>(std::ssize(part_->part().tensors().devices()));
  for (DeviceRank peer = 0; peer < devices; ++peer) {
    if (peer != device()) peers_.all.push_back(peer);
  }
}

bool GpuBinding::is_of_group() const {
  return has_collectives_ || std::ranges::any_of(legs_, [](const BoundLeg& leg) {
           return leg.compiled().is_of_group();
         });
}

int64_t GpuBinding::staging_bytes() const {
  int64_t bytes = 0;
  for (const BoundLeg& leg : legs_) bytes = std::max(bytes, leg.compiled().staging_bytes());
  return bytes;
}

absl::Status GpuBinding::Upload(Gpu& gpu, const BoundLists& lists, const GpuStream& upload) {
  const std::array parts = {
      std::as_bytes(std::span(lists.boxes)), std::as_bytes(std::span(lists.segments.packs)),
      std::as_bytes(std::span(lists.segments.copies)), std::as_bytes(std::span(lists.reductions)),
      std::as_bytes(std::span(lists.matrices))};
  int64_t bytes = 0;
  for (const auto& part : parts) bytes += std::ssize(part);
  int64_t kept_bytes = agreement_bytes();
  for (const BoundLeg& leg : legs_) kept_bytes += leg.hash_bytes();
  ASSIGN_OR_RETURN(host_memory_, RegisteredMemory::Create(gpu, ByteCount(kept_bytes + bytes)));
  ASSIGN_OR_RETURN(lists_, GpuMemory::Create(gpu, ByteCount(bytes), {}));
  ASSIGN_OR_RETURN(uploaded_, GpuEvent::Create(gpu));
  // By way of pinned memory: a copy from other pages may make the caller wait.
  const std::span<std::byte> pinned = host_memory_->bytes().subspan(kept_bytes, bytes);
  std::array<uint64_t, parts.size()> addresses = {};
  int64_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    // The items of all lists have sizes that are multiples of 8.
    addresses[i] = lists_->address() + offset;
    std::ranges::copy(parts[i], pinned.begin() + offset);
    offset += std::ssize(parts[i]);
  }
  const BoundLeg::ListsOnGpu on_gpu = {
      .boxes = DevicePointer<const KernelBox>(addresses[0]),
      .packs = DevicePointer<const PackSegment>(addresses[1]),
      .copies = DevicePointer<const CopySegment>(addresses[2]),
      .reductions = DevicePointer<const ReductionSegment>(addresses[3]),
      .matrices = DevicePointer<const ScaledMatrix>(addresses[4])};
  int64_t hashes_offset = agreement_bytes();
  for (BoundLeg& leg : legs_) {
    leg.Place(on_gpu, *host_memory_, hashes_offset);
    hashes_offset += leg.hash_bytes();
  }
  if (bytes > 0) RETURN_IF_ERROR(host_memory_->CopyToGpu(pinned, lists_->address(), upload));
  return uploaded_->Record(upload);
}

void GpuBinding::Prepare(const TaskKey& key) {
  std::ranges::fill(agreements(), ExecutionAgreement());
  agreements().front() = ExecutionAgreement::Of(agreement_, key);
  for (BoundLeg& leg : legs_) leg.SpoilHashes();
}

DeviceReport GpuBinding::Compare() const {
  if (!part_->part().has_courses()) {
    return CompareChecksums(legs_.front().compiled(), legs_.front().hashes());
  }
  DeviceReport report{.device = device(),
                      .bytes = part_->part().tensors().BytesOf(Side::kDestination, device())};
  // Over what every step of every instance brought it, step by step.
  std::vector<const BoundLeg*> in_order;
  for (const BoundLeg& leg : legs_) in_order.push_back(&leg);
  std::ranges::stable_sort(in_order, {}, [](const BoundLeg* leg) { return leg->step(); });
  DigestBuilder digest;
  for (const BoundLeg* const leg : in_order) {
    if (leg->compiled().part().destinations().empty()) continue;
    const DeviceReport of_leg = CompareChecksums(leg->compiled(), leg->hashes());
    if (!of_leg.status.ok() && report.status.ok()) {
      report.status = At(absl::StrCat("step ", leg->step()), of_leg.status);
      report.bytes = 0;
    }
    digest.AddDigest(of_leg.digest);
  }
  if (checksums_ && report.status.ok()) report.digest = digest.Finish();
  return report;
}

std::span<ExecutionAgreement> GpuBinding::agreements() const {
  return {reinterpret_cast<ExecutionAgreement*>(host_memory_->bytes().data()),
          static_cast<size_t>(1 + agreements_told_count())};
}

int64_t GpuBinding::agreement_bytes() const {
  return (1 + agreements_told_count()) * static_cast<int64_t>(sizeof(ExecutionAgreement));
}

}  // namespace crossmesh
