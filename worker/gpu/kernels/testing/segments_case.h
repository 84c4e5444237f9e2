#pragma once

#include "common/mesh/box.h"
#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/leaf_hash.h"
#include "worker/gpu/kernels/pieces_in_memory.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/kernel_of_types.h"
#include "worker/gpu/kernels/testing/kernel_runner.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// The boxes of several classes, in one list.
struct ClassesInMemory {
  // Of the class that is added, in the list.
  struct Boxes {
    int32_t first = 0;
    int32_t end = 0;
  };
  Boxes Add(BoxMemory one) {
    const auto first = static_cast<int32_t>(boxes.size());
    boxes.insert(boxes.end(), one.boxes.begin(), one.boxes.end());
    classes.push_back(std::move(one));
    return {.first = first, .end = static_cast<int32_t>(boxes.size())};
  }
  std::vector<std::span<std::byte>> regions() {
    std::vector<std::span<std::byte>> all;
    for (BoxMemory& one : classes) std::ranges::copy(one.regions(), std::back_inserter(all));
    return all;
  }
  std::vector<std::vector<std::byte>> Copies() const {
    std::vector<std::vector<std::byte>> copies;
    for (const BoxMemory& one : classes) copies.push_back(one.memory.Copy());
    return copies;
  }

  std::vector<BoxMemory> classes;
  std::vector<KernelBox> boxes;
};

// Ranges of some classes that one launch packs or unpacks: each with its place for packed bytes and
// its places for hashes, with gaps between them.
struct SegmentsCase {
  SegmentsCase(const KernelOfTypes& kernel, RandomSource& random) : types(kernel.types) {
    int64_t packed_bytes = 0;
    int64_t hash_count = 0;
    int64_t root_hash_count = 0;
    for (int64_t i = random.Between(1, 9); i > 0; --i) {
      BoxMemory one({.packed_bytes = random.Between(1, 5 * kLeafBytes / 4), .types = types},
                    random);
      const Interval range = RandomRange(one.packed_bytes, ItemBytes(types.to), random);
      const ClassesInMemory::Boxes boxes = memory.Add(std::move(one));
      segments.push_back({.begin = range.begin,
                          .end = range.end,
                          .packed_offset = packed_bytes,
                          .first_hash = hash_count,
                          .first_root_hash = root_hash_count,
                          .first_box = boxes.first,
                          .box_end = boxes.end,
                          .first_block = static_cast<int32_t>(blocks)});
      const int64_t leaves = LeavesOf(range.begin, range.end);
      blocks += leaves;
      packed_bytes += (range.end - range.begin + kPieceBytes * random.Between(1, 3)) / kPieceBytes *
                      kPieceBytes;
      hash_count += leaves + random.Below(2);
      root_hash_count += leaves + random.Below(3);
    }
    packed = KernelMemory(packed_bytes, random);
    hashes.resize(hash_count);
    root_hashes.resize(root_hash_count);
    for (uint64_t& hash : root_hashes) hash = static_cast<uint64_t>(random.Below(1LL << 60));
    root_hashes_to.resize(hash_count);
  }

  PackArguments Arguments() {
    return {.boxes = memory.boxes.data(),
            .segments = segments.data(),
            .segment_count = static_cast<int32_t>(segments.size()),
            .packed = packed.data(),
            .leaf_hashes = hashes.data()};
  }
  KernelLaunch LaunchOf(absl::string_view kernel, const PackArguments& arguments) {
    KernelLaunch run = {
        .kernel = kernel, .blocks = blocks, .arguments = arguments, .memory = memory.regions()};
    run.memory.push_back(packed.whole());
    for (auto* list : {&hashes, &root_hashes, &root_hashes_to}) {
      run.memory.push_back(BytesOf(*list));
    }
    return run;
  }
  // The place of a segment's packed bytes.
  std::span<std::byte> PackedOf(const PackSegment& segment) {
    return packed.bytes().subspan(segment.packed_offset, segment.end - segment.begin);
  }
  // What the hashes are then of these packed bytes.
  std::vector<uint64_t> HashesOfPacked() {
    std::vector<uint64_t> expected(hashes.size());
    for (const PackSegment& segment : segments) {
      std::ranges::copy(LeafHashesOnCpu(PackedOf(segment)), expected.begin() + segment.first_hash);
    }
    return expected;
  }

  const Conversion types;
  ClassesInMemory memory;
  std::vector<PackSegment> segments;
  int64_t blocks = 0;
  KernelMemory packed;
  std::vector<uint64_t> hashes;
  std::vector<uint64_t> root_hashes;
  std::vector<uint64_t> root_hashes_to;
};

// Ranges of some classes that one launch copies.
struct CopySegmentsCase {
  CopySegmentsCase(const KernelOfTypes& kernel, RandomSource& random) : types(kernel.types) {
    int64_t hash_count = 0;
    for (int64_t i = random.Between(1, 6); i > 0; --i) {
      BoxMemory from = SourcesOf(kernel, random);
      BoxMemory to({.packed_bytes = random.Between(16, 5 * kLeafBytes / 4)}, random);
      const Interval range =
          RandomRange(std::min(from.packed_bytes, to.packed_bytes), ItemBytes(types.to), random);
      const ClassesInMemory::Boxes source = sources.Add(std::move(from));
      const ClassesInMemory::Boxes destination = destinations.Add(std::move(to));
      segments.push_back({.begin = range.begin,
                          .end = range.end,
                          .first_hash = hash_count,
                          .first_source = source.first,
                          .source_end = source.end,
                          .first_destination = destination.first,
                          .destination_end = destination.end,
                          .first_block = static_cast<int32_t>(blocks)});
      blocks += LeavesOf(range.begin, range.end);
      hash_count += LeavesOf(range.begin, range.end) + random.Below(2);
    }
    source_hashes.resize(hash_count);
    destination_hashes.resize(hash_count);
  }

  CopyArguments Arguments() const {
    return {.sources = sources.boxes.data(),
            .destinations = destinations.boxes.data(),
            .segments = segments.data(),
            .segment_count = static_cast<int32_t>(segments.size())};
  }
  KernelLaunch LaunchOf(absl::string_view kernel, const CopyArguments& arguments) {
    KernelLaunch run = {
        .kernel = kernel, .blocks = blocks, .arguments = arguments, .memory = sources.regions()};
    std::ranges::copy(destinations.regions(), std::back_inserter(run.memory));
    for (auto* list : {&source_hashes, &destination_hashes}) run.memory.push_back(BytesOf(*list));
    return run;
  }
  // The destinations after the reference implementation has copied, which leaves them as they were.
  std::vector<std::vector<std::byte>> CopyByReference() {
    const std::vector<std::vector<std::byte>> before = destinations.Copies();
    for (size_t i = 0; i < segments.size(); ++i) {
      CopyOnCpu(sources.classes[i].boxes, destinations.classes[i].boxes,
                {.begin = segments[i].begin, .end = segments[i].end}, types);
    }
    std::vector<std::vector<std::byte>> copied = destinations.Copies();
    for (size_t i = 0; i < before.size(); ++i) {
      std::ranges::copy(before[i], destinations.classes[i].memory.whole().begin());
    }
    return copied;
  }
  // Of what the sources have, where they are not converted.
  std::vector<uint64_t> Hashes() const {
    std::vector<uint64_t> expected(source_hashes.size());
    for (size_t i = 0; i < segments.size(); ++i) {
      const std::vector<std::byte> all = PackOnCpu(sources.classes[i].boxes, types.from, types.to);
      const auto range =
          std::span(all).subspan(segments[i].begin, segments[i].end - segments[i].begin);
      std::ranges::copy(LeafHashesOnCpu(range), expected.begin() + segments[i].first_hash);
    }
    return expected;
  }

  const Conversion types;
  ClassesInMemory sources;
  ClassesInMemory destinations;
  std::vector<CopySegment> segments;
  int64_t blocks = 0;
  std::vector<uint64_t> source_hashes;
  std::vector<uint64_t> destination_hashes;
};

}  // namespace crossmesh
