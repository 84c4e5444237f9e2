#include "worker/gpu/compiler/compiled_part.h"

#include "common/base/digest_builder.h"
#include "common/base/status_macros.h"
#include "worker/gpu/compiler/collective_compiler.h"
#include "worker/gpu/compiler/m2n_compiler.h"
#include "worker/gpu/compiler/message_schedule.h"
#include "worker/gpu/compiler/part_compiler.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Bad(absl::string_view object, absl::string_view expected, int64_t found) {
  return absl::InvalidArgumentError(
      absl::StrCat("GPU compiled part, ", object, ": expected ", expected, ", found ", found));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledPart>> CompiledPart::Create(
    std::shared_ptr<const PreparedPart> part, const Options& options) {
  const size_t devices = part->part().spec().devices.size();
  if (devices != 1) return Bad("devices of the part", "one", static_cast<int64_t>(devices));
  if (options.staging_bytes < 0) return Bad("staging bytes", "0 or more", options.staging_bytes);
  if (options.steps_ahead < 0) return Bad("steps ahead", "0 or more", options.steps_ahead);
  if (part->part().spec().m2n) {
    ASSIGN_OR_RETURN(Lists lists, CompileForM2n(*part, options));
    return std::shared_ptr<const CompiledPart>(
        new CompiledPart(std::move(part), options, std::move(lists)));
  }
  if (options.collective.has_value()) {
    Options of_collective = options;
    of_collective.checksums &= !Reduces(options.collective->kind);
    ASSIGN_OR_RETURN(Lists lists, CompileForCollective(*part, of_collective));
    return std::shared_ptr<const CompiledPart>(
        new CompiledPart(std::move(part), of_collective, std::move(lists)));
  }
  ASSIGN_OR_RETURN(const MessageSchedule schedule, ScheduleMessages(*part));
  ASSIGN_OR_RETURN(Lists lists, CompilePart(*part, schedule, options));
  return std::shared_ptr<const CompiledPart>(
      new CompiledPart(std::move(part), options, std::move(lists)));
}

CompiledPart::CompiledPart(std::shared_ptr<const PreparedPart> part, const Options& options,
                           Lists lists)
    : part_(std::move(part)),
      options_(options),
      lists_(std::move(lists)),
      agreement_(ComputeAgreement()) {}

Digest CompiledPart::ComputeAgreement() const {
  // Neither the part, which differs from rank to rank, nor what is each device's own affair: how
  // large its staging is, and what lies where.
  const WorkerPart::Spec& spec = part_->part().spec();
  DigestBuilder builder;
  builder.AddText("crossmesh gpu compiled part 1");
  builder.AddDigest(spec.plan);
  builder.AddDigest(spec.tensors->digest());
  builder.AddInt(spec.chunk_bytes);
  builder.AddInt(spec.periods);
  builder.AddInt(options_.checksums ? 1 : 0);
  return builder.Finish();
}

}  // namespace crossmesh
