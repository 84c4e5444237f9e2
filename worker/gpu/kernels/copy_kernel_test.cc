#include "worker/gpu/kernels/copy_kernel.h"

#include "common/mesh/conversion.h"
#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/cpu_twins.h"
#include "worker/gpu/kernels/testing/host_kernels.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A kernel, and what it makes of elements.
struct KernelOfTypes {
  const char* name;
  Conversion types;
};

constexpr KernelOfTypes kCopy = {"crossmesh_copy", {DataType::kU8, DataType::kU8}};
constexpr KernelOfTypes kConverting[] = {
    {"crossmesh_copy_bf16_as_f16", {DataType::kBF16, DataType::kF16}},
    {"crossmesh_copy_bf16_as_f32", {DataType::kBF16, DataType::kF32}},
    {"crossmesh_copy_f16_as_bf16", {DataType::kF16, DataType::kBF16}},
    {"crossmesh_copy_f16_as_f32", {DataType::kF16, DataType::kF32}},
    {"crossmesh_copy_f32_as_bf16", {DataType::kF32, DataType::kBF16}},
    {"crossmesh_copy_f32_as_f16", {DataType::kF32, DataType::kF16}},
};

// A range of a class that lies in some boxes and is to be copied to others.
struct CopyCase {
  CopyCase(const KernelOfTypes& chosen, RandomSource& random)
      : kernel(chosen),
        sources({.packed_bytes = random.Between(1, 5 * kLeafBytes / 2),
                 .memory_bytes = static_cast<int>(ItemBytes(chosen.types.from)),
                 .packed_element_bytes = static_cast<int>(ItemBytes(chosen.types.to))},
                random),
        destinations({.packed_bytes = random.Between(16, 5 * kLeafBytes / 2)}, random) {
    const int64_t item_bytes = ItemBytes(kernel.types.to);
    const int64_t items = std::min(sources.packed_bytes, destinations.packed_bytes) / item_bytes;
    begin = random.OneIn(3) ? 0 : random.Below(items) * item_bytes;
    end = (random.OneIn(3) ? items : random.Between(begin / item_bytes + 1, items)) * item_bytes;
    source_hashes.resize(LeavesOf(begin, end));
    destination_hashes.resize(LeavesOf(begin, end));
  }

  CopyArguments Arguments() {
    return {.sources = sources.boxes.data(),
            .destinations = destinations.boxes.data(),
            .source_count = static_cast<int32_t>(sources.boxes.size()),
            .destination_count = static_cast<int32_t>(destinations.boxes.size()),
            .begin = begin,
            .end = end,
            .source_hashes = source_hashes.data(),
            .destination_hashes = destination_hashes.data()};
  }
  void Run(const CopyArguments& arguments) const {
    HostKernelOf(kernel.name).run(static_cast<int32_t>(source_hashes.size()), &arguments);
  }
  // What the sources have of the range, as it is packed.
  std::vector<std::byte> Packed() const {
    const std::vector<std::byte> packed =
        PackOnCpu(sources.boxes, kernel.types.from, kernel.types.to);
    return {packed.begin() + begin, packed.begin() + end};
  }
  // The destinations' memory after its twin has copied, which leaves it as it was.
  std::vector<std::byte> CopyByTwin() {
    const std::vector<std::byte> before(destinations.memory.bytes().begin(),
                                        destinations.memory.bytes().end());
    CopyOnCpu(sources.boxes, destinations.boxes, {begin, end}, kernel.types);
    std::vector<std::byte> copied = destinations.memory.Copy();
    std::ranges::copy(before, destinations.memory.data());
    return copied;
  }

  const KernelOfTypes kernel;
  BoxMemory sources;
  BoxMemory destinations;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<uint64_t> source_hashes;
  std::vector<uint64_t> destination_hashes;
};

TEST(CopyKernelTest, CopiesAndHashesAsItsTwinAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    CopyCase one(kCopy, random);
    const std::vector<std::byte> sources_before = one.sources.memory.Copy();
    const std::vector<std::byte> expected = one.CopyByTwin();
    one.Run(one.Arguments());
    ASSERT_EQ(one.destinations.memory.Copy(), expected);
    EXPECT_EQ(one.sources.memory.Copy(), sources_before);
    const std::vector<uint64_t> hashes = LeafHashesOnCpu(one.Packed());
    ASSERT_EQ(one.source_hashes, hashes);
    ASSERT_EQ(one.destination_hashes, hashes);
  }
}

TEST(CopyKernelTest, EitherHashOrNoneIsLeftOut) {
  for (uint64_t seed = 200; seed < 230; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    CopyCase one(kCopy, random);
    const std::vector<std::byte> expected = one.CopyByTwin();
    const std::vector<uint64_t> hashes = LeafHashesOnCpu(one.Packed());
    const std::vector<uint64_t> none(hashes.size());
    const bool of_source = random.OneIn(2);
    const bool of_destination = !of_source && random.OneIn(2);
    CopyArguments arguments = one.Arguments();
    if (!of_source) arguments.source_hashes = nullptr;
    if (!of_destination) arguments.destination_hashes = nullptr;
    one.Run(arguments);
    EXPECT_EQ(one.destinations.memory.Copy(), expected);
    EXPECT_EQ(one.source_hashes, of_source ? hashes : none);
    EXPECT_EQ(one.destination_hashes, of_destination ? hashes : none);
  }
}

KernelBox OneRow(KernelMemory& memory, int64_t bytes, int64_t packed_offset = 0) {
  return {.address = memory.address(),
          .rows = 1,
          .row_bytes = bytes,
          .pitch_bytes = bytes,
          .packed_offset = packed_offset};
}

TEST(CopyKernelTest, TheDestinationsHashIsOfWhatArrivedAndNotOfWhatWasRead) {
  RandomSource random(1);
  KernelMemory from(2048, random);
  KernelMemory to(1024, random);
  const KernelBox source = OneRow(from, 2048);
  // Two boxes on the same memory: only one of them can be there in the end.
  const KernelBox destinations[] = {OneRow(to, 1024), OneRow(to, 1024, 1024)};
  uint64_t source_hash = 0;
  uint64_t destination_hash = 0;
  const CopyArguments arguments = {.sources = &source,
                                   .destinations = destinations,
                                   .source_count = 1,
                                   .destination_count = 2,
                                   .end = 2048,
                                   .source_hashes = &source_hash,
                                   .destination_hashes = &destination_hash};
  HostKernelOf("crossmesh_copy").run(1, &arguments);
  EXPECT_EQ(source_hash, LeafHashesOnCpu(from.bytes())[0]);
  EXPECT_EQ(destination_hash,
            LeafHashesOnCpu(PackOnCpu(destinations, DataType::kU8, DataType::kU8))[0]);
  EXPECT_NE(destination_hash, source_hash);
}

class ConvertKernelTest : public ::testing::TestWithParam<KernelOfTypes> {};

TEST_P(ConvertKernelTest, ConvertsAsItsTwinAndWritesNothingElse) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    CopyCase one(GetParam(), random);
    const std::vector<std::byte> sources_before = one.sources.memory.Copy();
    const std::vector<std::byte> expected = one.CopyByTwin();
    CopyArguments arguments = one.Arguments();
    arguments.source_hashes = nullptr;
    arguments.destination_hashes = nullptr;
    one.Run(arguments);
    ASSERT_EQ(one.destinations.memory.Copy(), expected);
    EXPECT_EQ(one.sources.memory.Copy(), sources_before);
  }
}

INSTANTIATE_TEST_SUITE_P(Conversions, ConvertKernelTest, ::testing::ValuesIn(kConverting),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace crossmesh
