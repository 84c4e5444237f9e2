// Kernels launched by a GPU, on its memory, against their reference implementations.

#include "common/mesh/data_type.h"
#include "common/plan/testing/random_source.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/device/testing/gpu_fixture.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/kernel_launches.h"
#include "worker/gpu/kernels/testing/box_memory.h"
#include "worker/gpu/kernels/testing/reference_kernels.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBytes = 300'000;

// A list in registered memory.
template <typename T>
struct RegisteredList {
  RegisteredList(Gpu& gpu, size_t count) {
    auto created =
        RegisteredMemory::Create(gpu, ByteCount(static_cast<int64_t>(count * sizeof(T))));
    EXPECT_OK(created);
    memory = *std::move(created);
  }
  RegisteredList(Gpu& gpu, const std::vector<T>& values) : RegisteredList(gpu, values.size()) {
    std::memcpy(memory->bytes().data(), values.data(), memory->bytes().size());
  }

  T* on_device() const { return AtAddress<T>(memory->device_address()); }
  std::vector<T> Values() const {
    std::vector<T> values(memory->bytes().size() / sizeof(T));
    std::memcpy(values.data(), memory->bytes().data(), memory->bytes().size());
    return values;
  }

  std::unique_ptr<RegisteredMemory> memory;
};

class GpuKernelsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ASSERT_OK_AND_ASSIGN(memory_, GpuMemory::Create(*gpu_, ByteCount(kBytes), {}));
  }
  void TearDown() override {
    memory_.reset();
    GpuTest::TearDown();
  }

  std::byte* packed() const { return AtAddress<std::byte>(memory_->address()); }
  std::span<const std::byte> Packed(int64_t bytes) const {
    return {packed(), static_cast<size_t>(bytes)};
  }
  BoxMemory MakeBoxes(RandomSource& random) {
    return BoxMemory({.packed_bytes = kBytes / 2}, random);
  }

  std::unique_ptr<GpuMemory> memory_;
};

PackArguments AllOfBoxes(const BoxMemory& boxes, const RegisteredList<KernelBox>& list) {
  return {.boxes = list.on_device(),
          .box_count = static_cast<int32_t>(boxes.boxes.size()),
          .end = std::min(kBytes, boxes.packed_bytes)};
}

TEST_F(GpuKernelsTest, PackAndUnpackAreTheirReferences) {
  RandomSource random(1);
  const BoxMemory source = MakeBoxes(random);
  const RegisteredList<KernelBox> list(*gpu_, source.boxes);
  PackArguments arguments = AllOfBoxes(source, list);
  const int64_t leaves = LeavesOf(0, arguments.end);
  const RegisteredList<uint64_t> packed_hashes(*gpu_, leaves);
  const RegisteredList<uint64_t> unpacked_hashes(*gpu_, leaves);
  arguments.packed = packed();
  arguments.leaf_hashes = packed_hashes.on_device();
  const auto pack = gpu_->KernelNamed<PackArguments>("crossmesh_pack");
  ASSERT_OK(gpu_->Launch(pack, leaves, arguments, *stream_));
  arguments.leaf_hashes = unpacked_hashes.on_device();
  const auto unpack = gpu_->KernelNamed<PackArguments>("crossmesh_unpack");
  ASSERT_OK(gpu_->Launch(unpack, leaves, arguments, *stream_));
  Finish();
  std::vector<std::byte> expected = PackOnCpu(source.boxes, DataType::kU8, DataType::kU8);
  expected.resize(arguments.end);
  EXPECT_TRUE(std::ranges::equal(Packed(arguments.end), expected));
  EXPECT_EQ(packed_hashes.Values(), LeafHashesOnCpu(expected));
  EXPECT_EQ(unpacked_hashes.Values(), LeafHashesOnCpu(expected));
}

TEST_F(GpuKernelsTest, CopyIsItsReference) {
  RandomSource random(2);
  const BoxMemory source = MakeBoxes(random);
  BoxMemory destination = MakeBoxes(random);
  const RegisteredList<KernelBox> sources(*gpu_, source.boxes);
  const RegisteredList<KernelBox> destinations(*gpu_, destination.boxes);
  const CopyArguments arguments = {
      .sources = sources.on_device(),
      .destinations = destinations.on_device(),
      .source_count = static_cast<int32_t>(source.boxes.size()),
      .destination_count = static_cast<int32_t>(destination.boxes.size()),
      .end = std::min(source.packed_bytes, destination.packed_bytes)};
  const auto copy = gpu_->KernelNamed<CopyArguments>("crossmesh_copy");
  ASSERT_OK(gpu_->Launch(copy, LeavesOf(0, arguments.end), arguments, *stream_));
  Finish();
  const std::vector<std::byte> copied = destination.memory.Copy();
  CopyOnCpu(source.boxes, destination.boxes, {0, arguments.end}, {});
  EXPECT_EQ(copied, destination.memory.Copy());
}

TEST_F(GpuKernelsTest, ScaleIsItsReference) {
  RandomSource random(3);
  KernelMemory elements(2 * 200 * 300, random);
  KernelMemory scales(4 * 2 * 3, random);
  KernelMemory factors(4 * 2 * 3, random);
  const std::vector<ScaledMatrix> matrices = {{.address = elements.address(),
                                               .rows = 200,
                                               .columns = 300,
                                               .pitch_bytes = 600,
                                               .scales_address = scales.address(),
                                               .factors_address = factors.address(),
                                               .scales_pitch_bytes = 12}};
  const RegisteredList<ScaledMatrix> list(*gpu_, matrices);
  const auto scale = gpu_->KernelNamed<ScaleArguments>("crossmesh_scale");
  ASSERT_OK(gpu_->Launch(scale, 6, {.matrices = list.on_device(), .matrix_count = 1}, *stream_));
  Finish();
  const std::vector<std::byte> scales_found = scales.Copy();
  const std::vector<std::byte> factors_found = factors.Copy();
  ScaleOnCpu(matrices);
  EXPECT_EQ(scales_found, scales.Copy());
  EXPECT_EQ(factors_found, factors.Copy());
}

TEST_F(GpuKernelsTest, EveryKernelIsFoundByItsNameAndArguments) {
  for (const Kernel& kernel : Kernels()) {
    switch (kernel.parameter) {
      case KernelParameter::kCopy:
        EXPECT_EQ(kernel.argument_bytes, sizeof(CopyArguments));
        gpu_->KernelNamed<CopyArguments>(kernel.name);
        break;
      case KernelParameter::kPack:
        EXPECT_EQ(kernel.argument_bytes, sizeof(PackArguments));
        gpu_->KernelNamed<PackArguments>(kernel.name);
        break;
      case KernelParameter::kScale:
        EXPECT_EQ(kernel.argument_bytes, sizeof(ScaleArguments));
        gpu_->KernelNamed<ScaleArguments>(kernel.name);
        break;
    }
  }
}

TEST_F(GpuKernelsTest, AChunkCostsNoCallButThoseThatWereAskedFor) {
  RandomSource random(5);
  const BoxMemory source = MakeBoxes(random);
  const RegisteredList<KernelBox> list(*gpu_, source.boxes);
  PackArguments arguments = AllOfBoxes(source, list);
  arguments.packed = packed();
  const auto pack = gpu_->KernelNamed<PackArguments>("crossmesh_pack");
  ASSERT_OK_AND_ASSIGN(const auto wire, GpuStream::Create(*gpu_));
  ASSERT_OK_AND_ASSIGN(const auto packed_event, GpuEvent::Create(*gpu_));
  const size_t calls_before = stand_in_->Calls().size();
  ASSERT_OK(gpu_->Launch(pack, LeavesOf(0, arguments.end), arguments, *stream_));
  ASSERT_OK(packed_event->Record(*stream_));
  ASSERT_OK(wire->WaitFor(*packed_event));
  ASSERT_OK(packed_event->IsDone());
  std::vector<std::string> calls;
  for (const StandInCall& call : stand_in_->Calls()) calls.emplace_back(call.name);
  calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(calls_before));
  EXPECT_THAT(calls,
              ElementsAre("cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery"));
  Finish();
}

}  // namespace
}  // namespace crossmesh
