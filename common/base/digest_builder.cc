#include "common/base/digest_builder.h"

#include "common/base/check.h"

#include <xxhash.h>

namespace crossmesh {

struct DigestBuilder::State {
  // Allocated by the library because the state must be aligned to 64 bytes.
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> xxh3{XXH3_createState(),
                                                                &XXH3_freeState};
};

DigestBuilder::DigestBuilder() : state_(std::make_unique<State>()) {
  CHECK(state_->xxh3 != nullptr) << "out of memory";
  XXH3_128bits_reset(state_->xxh3.get());
}

DigestBuilder::~DigestBuilder() = default;

void DigestBuilder::AddBytes(std::span<const std::byte> bytes) {
  Flush();
  XXH3_128bits_update(state_->xxh3.get(), bytes.data(), bytes.size());
}

void DigestBuilder::AddText(absl::string_view text) {
  AddInt(static_cast<int64_t>(text.size()));
  AddBytes(std::as_bytes(std::span(text.data(), text.size())));
}

void DigestBuilder::AddDigest(const Digest& digest) {
  AddInt(static_cast<int64_t>(digest.high));
  AddInt(static_cast<int64_t>(digest.low));
}

Digest DigestBuilder::Finish() {
  Flush();
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3.get());
  return {.high = hash.high64, .low = hash.low64};
}

void DigestBuilder::Flush() {
  XXH3_128bits_update(state_->xxh3.get(), buffer_.data(), used_);
  used_ = 0;
}

}  // namespace crossmesh
