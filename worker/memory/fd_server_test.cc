#include "worker/memory/fd_server.h"

#include "common/base/check.h"
#include "common/base/descriptor_datagram.h"
#include "common/base/mutex.h"
#include "common/base/testing/resource_limit.h"
#include "common/memory_protocol/storage_sequence.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <cstring>
#include <ctime>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using Op = MemoryRequest::Op;

// A client as plain as can be, so that it can also say what a proper one would not.
class RawClient {
 public:
  explicit RawClient(const std::string& path)
      : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX};
    std::memcpy(address.sun_path, path.data(), path.size());
    CHECK_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  void Say(const std::string& datagram) {
    CHECK_EQ(send(socket_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL),
             std::ssize(datagram));
  }
  // The descriptor that came along is in `descriptor`.
  absl::StatusOr<MemoryReply> Hear() {
    std::string datagram(kMemoryDatagramBytesMax, '\0');
    ReceivedDatagram received = ReceiveDatagram(socket_.get(), datagram);
    if (received.size <= 0) return absl::UnavailableError("hung up");
    descriptor = received.TakeDescriptor();
    return DecodeMemoryReply(absl::string_view(datagram.data(), received.size));
  }
  bool HearsWithin(absl::Duration patience) {
    pollfd waiting = {.fd = socket_.get(), .events = POLLIN};
    return poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) > 0;
  }
  MemoryReply Ask(const MemoryRequest& request) {
    Say(Encode(request));
    auto reply = Hear();
    CHECK_OK(reply);
    return *std::move(reply);
  }

  UniqueFd descriptor;

 private:
  UniqueFd socket_;
};

class FdServerTest : public testing::Test {
 protected:
  FdServerTest() { Start({}); }
  ~FdServerTest() override { server_->Stop(); }
  void Start(FdServer::Options options) {
    server_.reset();
    options.socket_path = path();
    auto server = FdServer::Create(storages_, options);
    CHECK_OK(server);
    server_ = *std::move(server);
  }
  std::string path() const { return folder_.PathOf("memory.sock"); }

  StorageTable storages_{Arena::Pages::kSmall};
  const TemporaryFolder folder_;
  std::unique_ptr<FdServer> server_;
};

TEST_F(FdServerTest, OnlyItsUserMayConnect) {
  struct stat found;
  ASSERT_EQ(stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
}

TEST_F(FdServerTest, HandsOutTheMemoryOfAStorage) {
  RawClient client(path());
  const MemoryReply reply =
      client.Ask({.op = Op::kCreate, .storage = "trainer", .device = "a.0", .bytes = 4096});
  ASSERT_OK(reply.status);
  EXPECT_EQ(reply.storages[0], (StorageDescription{"trainer", "a.0", 4096, 1, false}));
  ASSERT_TRUE(client.descriptor.valid());
  void* memory =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, client.descriptor.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  static_cast<std::byte*>(memory)[5] = std::byte{77};
  munmap(memory, 4096);
  const auto lease = storages_.LeaseForReading({"trainer", {"a", 0}}, 4096);
  EXPECT_EQ(lease->bytes()[5], std::byte{77});
}

TEST_F(FdServerTest, ALoanByAHandleHasNoDescriptorAndEndsWithItsConnection) {
  std::promise<absl::Status> ended;
  const auto lend = [](const StorageKey& key, ByteCount bytes, const LentAllocation& memory) {
    EXPECT_EQ(memory.ipc_handle, std::string(64, 'h'));
    auto lent = std::make_shared<DeviceMemory>("GPU-1", DeviceMemory::Kind::kLentByHandle);
    lent->Finish(UniqueFd());
    return Arena::Reserve(key.name, bytes, std::move(lent));
  };
  const auto end = [&](const StorageKey& /*key*/, const std::shared_ptr<Arena>& /*arena*/,
                       const absl::Status& why) {
    // With a text of its own: copies share one, counted inside a library that ThreadSanitizer does
    // not see.
    ended.set_value(absl::Status(why.code(), why.message()));
  };
  Start({.user_memory = {.lend = lend, .end = end}});
  auto client = std::make_optional<RawClient>(path());
  ASSERT_OK(client
                ->Ask({.op = Op::kLend,
                       .storage = "pool",
                       .device = "a.0",
                       .bytes = 4096,
                       .ipc_handle = std::string(64, 'h')})
                .status);
  EXPECT_FALSE(client->descriptor.valid());
  EXPECT_THAT(client->Ask({.op = Op::kOpen, .storage = "pool", .device = "a.0"}).status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("memory of a user process, which has no descriptor")));
  client.reset();
  EXPECT_THAT(ended.get_future().get(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lender has hung up")));
}

TEST_F(FdServerTest, OpenGivesTheCurrentArenaAfterACommit) {
  const StorageKey key{"trainer", {"a", 0}};
  ASSERT_OK(storages_.Create(key, 4096));
  auto shadow = *storages_.LeaseForWriting(key, 4096, {.shadow = true});
  shadow.bytes()[0] = std::byte{3};
  ASSERT_OK(storages_.Commit(std::move(shadow)));
  RawClient client(path());
  const MemoryReply reply = client.Ask({.op = Op::kOpen, .storage = "trainer", .device = "a.0"});
  EXPECT_EQ(reply.storages[0].generation, 2U);
  std::byte first{};
  ASSERT_EQ(pread(client.descriptor.get(), &first, 1, 0), 1);
  EXPECT_EQ(first, std::byte{3});
}

TEST_F(FdServerTest, HandsOutThePageOfAStoragesSequence) {
  RawClient client(path());
  client.Ask({.op = Op::kCreate, .storage = "trainer", .device = "a.0", .bytes = 64});
  const MemoryReply reply =
      client.Ask({.op = Op::kSequence, .storage = "trainer", .device = "a.0"});
  ASSERT_EQ(reply.storages.size(), 1U);
  EXPECT_EQ(reply.storages[0].bytes, 64);
  void* const page = mmap(nullptr, kSequencePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                          client.descriptor.get(), 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& words = *static_cast<StorageSequence*>(page);
  EXPECT_EQ(words.generation, 1U);
  words.user = 1;
  const StorageKey key{.name = "trainer", .device = {"a", 0}};
  EXPECT_THAT(storages_.LeaseForReading(key, 64), StatusIs(absl::StatusCode::kFailedPrecondition));
  words.user = 2;
  EXPECT_OK(storages_.LeaseForReading(key, 64));
  munmap(page, kSequencePageBytes);
}

TEST_F(FdServerTest, ListsAndDeletes) {
  RawClient client(path());
  (void)client.Ask({.op = Op::kCreate, .storage = "b", .device = "a.0", .bytes = 1});
  (void)client.Ask({.op = Op::kCreate, .storage = "a", .device = "a.0", .bytes = 1});
  EXPECT_EQ(client.Ask({.op = Op::kList}).storages.size(), 2U);
  EXPECT_OK(client.Ask({.op = Op::kDelete, .storage = "b", .device = "a.0"}).status);
  EXPECT_FALSE(client.descriptor.valid());
  const MemoryReply list = client.Ask({.op = Op::kList});
  ASSERT_EQ(list.storages.size(), 1U);
  EXPECT_EQ(list.storages[0].storage, "a");
}

TEST_F(FdServerTest, ListsShadowsAndFreesThem) {
  const StorageKey key{"trainer", {"a", 0}};
  ASSERT_OK(storages_.Create(key, 4096));
  RawClient client(path());
  const auto shadow_bytes = [&] {
    return client.Ask({.op = Op::kList}).storages.at(0).shadow_bytes;
  };
  const MemoryRequest trim = {.op = Op::kTrim, .storage = "trainer", .device = "a.0"};
  EXPECT_EQ(shadow_bytes(), 0);
  auto shadow = *storages_.LeaseForWriting(key, 4096, {.shadow = true, .user = "operation op-1"});
  EXPECT_EQ(shadow_bytes(), 4096);
  EXPECT_THAT(client.Ask(trim).status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("operation op-1")));
  ASSERT_OK(storages_.Commit(std::move(shadow)));
  EXPECT_OK(client.Ask(trim).status);
  EXPECT_EQ(shadow_bytes(), 0);
}

TEST_F(FdServerTest, SaysWhatItRefuses) {
  RawClient client(path());
  const auto code = [&](const MemoryRequest& request) { return client.Ask(request).status.code(); };
  EXPECT_EQ(code({.op = Op::kOpen, .storage = "x", .device = "a.0"}), absl::StatusCode::kNotFound);
  EXPECT_EQ(code({.op = Op::kOpen, .storage = "x", .device = "!"}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.op = Op::kCreate, .storage = "x", .device = "a.0", .bytes = int64_t{1} << 60}),
            absl::StatusCode::kResourceExhausted);
  std::vector<std::byte> memory(8);
  ASSERT_OK(storages_.Adopt({"lent", {"a", 0}}, Arena::Borrow(memory)));
  EXPECT_EQ(code({.op = Op::kOpen, .storage = "lent", .device = "a.0"}),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(FdServerTest, AStorageIsAtMostAsLargeAsTheOptionsSay) {
  Start({.storage_bytes_max = 4096});
  RawClient client(path());
  const MemoryReply refused =
      client.Ask({.op = Op::kCreate, .storage = "x", .device = "a.0", .bytes = 4097});
  EXPECT_THAT(refused.status,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("expected at most 4096")));
  EXPECT_FALSE(client.descriptor.valid());
  EXPECT_OK(client.Ask({.op = Op::kCreate, .storage = "x", .device = "a.0", .bytes = 4096}).status);
}

TEST_F(FdServerTest, SurvivesHostileDatagrams) {
  std::mt19937_64 random(1);
  const std::string good = Encode({.op = Op::kOpen, .storage = "trainer", .device = "a.0"});
  RawClient client(path());
  for (int i = 0; i < 2000; ++i) {
    std::string datagram = good;
    datagram[random() % datagram.size()] = static_cast<char>(random());
    datagram.resize(1 + random() % datagram.size());
    client.Say(datagram);
    ASSERT_OK_AND_ASSIGN(const MemoryReply reply, client.Hear());
    EXPECT_FALSE(reply.status.ok());
  }
  client.Say(std::string(10'000, '['));
  ASSERT_OK_AND_ASSIGN(const MemoryReply reply, client.Hear());
  EXPECT_THAT(reply.status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10000")));
}

TEST_F(FdServerTest, AClientThatDoesNotReadIsCutOffAndOthersAreServed) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_OK(storages_.Create({"storage-" + std::to_string(i), {"a", 0}}, 1));
  }
  auto deaf = std::make_unique<RawClient>(path());
  for (int i = 0; i < 8; ++i) deaf->Say(Encode({.op = Op::kList}));
  RawClient client(path());
  EXPECT_EQ(client.Ask({.op = Op::kList}).storages.size(), 200U);
}

TEST_F(FdServerTest, ServesMoreClientsThanItKeepsOneAfterTheOther) {
  Start({.clients_max = 1});
  auto first = std::make_unique<RawClient>(path());
  EXPECT_OK(first->Ask({.op = Op::kList}).status);
  RawClient second(path());
  second.Say(Encode({.op = Op::kList}));
  first.reset();
  EXPECT_OK(second.Hear());
}

absl::Duration CpuTime() {
  timespec used = {};
  CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

TEST_F(FdServerTest, AClientWaitsForDescriptorsWhichCostsNoTime) {
  RawClient served(path());
  EXPECT_OK(served.Ask({.op = Op::kList}).status);
  std::optional<ScopedResourceLimit> limit(std::in_place, RLIMIT_NOFILE,
                                           LowestFreeDescriptor() + 1);
  RawClient waiting(path());  // has the last descriptor
  waiting.Say(Encode({.op = Op::kList}));
  const absl::Duration before = CpuTime();
  EXPECT_FALSE(waiting.HearsWithin(absl::Milliseconds(500)));
  EXPECT_LT(CpuTime() - before, absl::Milliseconds(200));
  EXPECT_OK(served.Ask({.op = Op::kList}).status);
  limit.reset();
  EXPECT_OK(waiting.Hear());
}

TEST_F(FdServerTest, ReplacesTheSocketOfAPredecessorAndNothingElse) {
  Start({});
  EXPECT_OK(RawClient(path()).Ask({.op = Op::kList}).status);
  const std::string file = folder_.PathOf("precious");
  FILE* precious = fopen(file.c_str(), "w");
  fclose(precious);
  EXPECT_THAT(FdServer::Create(storages_, {.socket_path = file}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found another file")));
  EXPECT_EQ(unlink(file.c_str()), 0);
  EXPECT_THAT(FdServer::Create(storages_, {.socket_path = std::string(200, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FdServerTest, TheSocketOfAServerThatLivesStaysItsOwn) {
  StorageTable others{Arena::Pages::kSmall};
  EXPECT_THAT(FdServer::Create(others, {.socket_path = path()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another server")));
  ASSERT_OK(storages_.Create({"trainer", {"a", 0}}, 1));
  EXPECT_EQ(RawClient(path()).Ask({.op = Op::kList}).storages.size(), 1U);
}

TEST_F(FdServerTest, ASocketThatHasTakenThePathSinceStaysWhenItStops) {
  ASSERT_EQ(unlink(path().c_str()), 0);
  StorageTable others{Arena::Pages::kSmall};
  ASSERT_OK_AND_ASSIGN(const auto other, FdServer::Create(others, {.socket_path = path()}));
  server_->Stop();
  EXPECT_OK(RawClient(path()).Ask({.op = Op::kList}).status);
}

TEST_F(FdServerTest, StopHangsUpAndRemovesTheSocket) {
  RawClient client(path());
  (void)client.Ask({.op = Op::kList});
  server_->Stop();
  server_->Stop();
  EXPECT_THAT(client.Hear(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_NE(access(path().c_str(), F_OK), 0);
}

// Storages of a GPU whose memory the test makes.
class GpuFdServerTest : public testing::Test {
 protected:
  // Once the server has asked for it.
  DeviceMemory& AwaitMemory() {
    MutexLock lock(mutex_);
    while (memory_ == nullptr) asked_.Wait(mutex_);
    return *memory_;
  }

  Mutex mutex_;
  CondVar asked_;
  std::shared_ptr<DeviceMemory> memory_ ABSL_GUARDED_BY(mutex_);
  StorageTable storages_{[this](const StorageKey& key, ByteCount bytes) {
    if (key.device.host != "gpu") return MakeHostArena(key, bytes, Arena::Pages::kSmall);
    MutexLock lock(mutex_);
    memory_ = std::make_shared<DeviceMemory>("GPU-1");
    asked_.SignalAll();
    return Arena::Reserve("test", bytes, memory_);
  }};
  const TemporaryFolder folder_;
  std::unique_ptr<FdServer> server_ =
      *FdServer::Create(storages_, {.socket_path = folder_.PathOf("memory.sock")});
  const MemoryRequest create_ = {.op = Op::kCreate, .storage = "w", .device = "gpu.0", .bytes = 64};
};

TEST_F(GpuFdServerTest, OnlyWhoWantsMemoryOfAGpuWaitsForIt) {
  RawClient waiting(folder_.PathOf("memory.sock"));
  waiting.Say(Encode(create_));
  DeviceMemory& memory = AwaitMemory();
  RawClient other(folder_.PathOf("memory.sock"));
  EXPECT_OK(other.Ask({.op = Op::kCreate, .storage = "w", .device = "a.0", .bytes = 64}).status);
  memory.Finish(UniqueFd(memfd_create("test", MFD_CLOEXEC)));
  ASSERT_OK_AND_ASSIGN(const MemoryReply reply, waiting.Hear());
  EXPECT_OK(reply.status);
  EXPECT_EQ(reply.storages[0].gpu, "GPU-1");
  EXPECT_TRUE(waiting.descriptor.valid());
  EXPECT_OK(waiting.Ask({.op = Op::kList}).status);
}

TEST_F(GpuFdServerTest, WhoWaitsIsToldWhyThereIsNoMemory) {
  RawClient client(folder_.PathOf("memory.sock"));
  client.Say(Encode(create_));
  AwaitMemory().Finish(absl::ResourceExhaustedError("full"));
  ASSERT_OK_AND_ASSIGN(const MemoryReply reply, client.Hear());
  EXPECT_THAT(reply.status, StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_FALSE(client.descriptor.valid());
}

}  // namespace
}  // namespace crossmesh
