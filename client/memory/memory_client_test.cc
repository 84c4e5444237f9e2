#include "client/memory/memory_client.h"

#include "common/base/check.h"
#include "common/base/descriptor_datagram.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A worker that gives one answer, right or wrong, to one request.
class MemoryClientTest : public testing::Test {
 protected:
  MemoryClientTest() : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX};
    std::memcpy(address.sun_path, path().data(), path().size());
    CHECK_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    CHECK_EQ(listen(listener_.get(), 4), 0);
  }
  ~MemoryClientTest() override { worker_.Join(); }

  std::string path() const { return folder_.PathOf("memory.sock"); }

  // `descriptor`: -1 sends none.
  void AnswerOnce(std::string datagram, int descriptor = -1) {
    worker_ = Thread("worker", [this, datagram = std::move(datagram), descriptor] {
      const UniqueFd client(accept(listener_.get(), nullptr, nullptr));
      request_.resize(4096);
      request_.resize(recv(client.get(), request_.data(), request_.size(), 0));
      Send(client.get(), datagram, descriptor);
    });
  }
  static void Send(int client, const std::string& datagram, int descriptor) {
    const std::span<const int> descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
    CHECK_EQ(SendDatagram(client, datagram, descriptors), std::ssize(datagram));
  }

  UniqueFd listener_;
  const TemporaryFolder folder_;
  std::string request_;
  Thread worker_;
};

const MemoryReply kTrainer{.storages = {{"trainer", "a.0", 4096, 7, false}}};

UniqueFd MakeMemory(int64_t bytes) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  CHECK_EQ(ftruncate(memory.get(), bytes), 0);
  return memory;
}

TEST_F(MemoryClientTest, ASequenceIsOddWhileTheMemoryIsUsed) {
  const UniqueFd page = MakeMemory(kSequencePageBytes);
  AnswerOnce(Encode(kTrainer), page.get());
  ASSERT_OK_AND_ASSIGN(MemoryClient client, MemoryClient::Connect(path()));
  ASSERT_OK_AND_ASSIGN(MappedSequence sequence, client.OpenSequence("trainer", "a.0"));
  worker_.Join();
  ASSERT_OK_AND_ASSIGN(const MemoryRequest request, DecodeMemoryRequest(request_));
  EXPECT_EQ(request.op, MemoryRequest::Op::kSequence);
  const std::atomic<uint64_t>& user = sequence.words().user;
  for (const uint64_t expected : {1, 1}) {
    sequence.BeginUse();
    EXPECT_EQ(user, expected);
  }
  MappedSequence moved = std::move(sequence);
  for (const uint64_t expected : {2, 2}) {
    moved.EndUse();
    EXPECT_EQ(user, expected);
  }
  EXPECT_EQ(moved.generation(), 0U);
  moved.words().generation = 5;
  EXPECT_EQ(moved.generation(), 5U);
}

TEST_F(MemoryClientTest, ASequencesPageIsNotMappedBeyondItsEnd) {
  const UniqueFd page = MakeMemory(kSequencePageBytes - 1);
  AnswerOnce(Encode(kTrainer), page.get());
  ASSERT_OK_AND_ASSIGN(MemoryClient client, MemoryClient::Connect(path()));
  EXPECT_THAT(client.OpenSequence("trainer", "a.0"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found a file of 4095")));
}

TEST_F(MemoryClientTest, MemoryOfAGpuIsHandedOutAndNotMapped) {
  const UniqueFd memory = MakeMemory(4096);
  const MemoryReply on_gpu{.storages = {{"trainer", "a.0", 4096, 7, false, "GPU-1"}}};
  AnswerOnce(Encode(on_gpu), memory.get());
  EXPECT_THAT(OpenStorage(path(), "trainer", "a.0"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("expected host memory, which can be mapped, found memory of "
                                 "GPU-1")));
  worker_.Join();
  AnswerOnce(Encode(on_gpu), memory.get());
  ASSERT_OK_AND_ASSIGN(MemoryClient client, MemoryClient::Connect(path()));
  ASSERT_OK_AND_ASSIGN(const GpuStorage storage, client.OpenOnGpu("trainer", "a.0"));
  EXPECT_EQ(storage.description, on_gpu.storages[0]);
  EXPECT_TRUE(storage.descriptor.valid());
}

TEST_F(MemoryClientTest, MemoryOfTheHostIsNoGpus) {
  const UniqueFd memory = MakeMemory(4096);
  AnswerOnce(Encode(kTrainer), memory.get());
  ASSERT_OK_AND_ASSIGN(MemoryClient client, MemoryClient::Connect(path()));
  EXPECT_THAT(client.OpenOnGpu("trainer", "a.0"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found the host's")));
}

TEST_F(MemoryClientTest, MapsWhatItOpens) {
  const UniqueFd memory = MakeMemory(4096);
  AnswerOnce(Encode(kTrainer), memory.get());
  ASSERT_OK_AND_ASSIGN(MappedStorage storage, OpenStorage(path(), "trainer", "a.0"));
  EXPECT_EQ(storage.description(), kTrainer.storages[0]);
  ASSERT_EQ(storage.bytes().size(), 4096U);
  MappedStorage moved = std::move(storage);
  moved.bytes()[1] = std::byte{5};
  std::byte found{};
  ASSERT_EQ(pread(memory.get(), &found, 1, 1), 1);
  EXPECT_EQ(found, std::byte{5});
  worker_.Join();
  EXPECT_THAT(DecodeMemoryRequest(request_),
              IsOkAndHolds(MemoryRequest{
                  .op = MemoryRequest::Op::kOpen, .storage = "trainer", .device = "a.0"}));
}

TEST_F(MemoryClientTest, MapsNothingBeyondTheEnd) {
  const UniqueFd memory = MakeMemory(100);
  AnswerOnce(Encode(kTrainer), memory.get());
  EXPECT_THAT(OpenStorage(path(), "trainer", "a.0").status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found a file of 100")));
}

TEST_F(MemoryClientTest, ExpectsADescriptor) {
  AnswerOnce(Encode(kTrainer));
  EXPECT_THAT(OpenStorage(path(), "trainer", "a.0").status(),
              StatusIs(absl::StatusCode::kInternal));
}

TEST_F(MemoryClientTest, PassesRefusalsOn) {
  AnswerOnce(Encode(MemoryReply{.status = absl::NotFoundError("no such storage")}));
  EXPECT_THAT(OpenStorage(path(), "trainer", "a.0").status(),
              StatusIs(absl::StatusCode::kNotFound, "no such storage"));
}

TEST_F(MemoryClientTest, RefusesNonsense) {
  AnswerOnce("nonsense");
  EXPECT_THAT(OpenStorage(path(), "trainer", "a.0").status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr(path())));
}

TEST_F(MemoryClientTest, DoesNotWaitForEver) {
  ASSERT_OK_AND_ASSIGN(MemoryClient client, MemoryClient::Connect(path(), absl::Milliseconds(50)));
  EXPECT_THAT(client.List().status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(MemoryClientTest, SaysWhereNoWorkerIs) {
  EXPECT_THAT(OpenStorage(path() + "x", "trainer", "a.0").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path() + "x")));
  EXPECT_THAT(OpenStorage(std::string(200, 'x'), "trainer", "a.0").status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
