// User processes and a worker share memory through its socket: MemoryClient against FdServer.

#include "client/memory/memory_client.h"
#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "worker/memory/fd_server.h"
#include "worker/memory/storage_table.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <absl/functional/function_ref.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;

class MemorySocketTest : public testing::Test {
 protected:
  MemorySocketTest() {
    auto server = FdServer::Create(storages_, {.socket_path = path()});
    CHECK_OK(server);
    server_ = *std::move(server);
  }
  ~MemorySocketTest() override { server_->Stop(); }

  std::string path() const { return folder_.PathOf("memory.sock"); }
  MemoryClient Connect() const {
    absl::StatusOr<MemoryClient> client = MemoryClient::Connect(path());
    CHECK_OK(client);
    return *std::move(client);
  }
  // Runs `body` in a process of its own; returns how that ended, as waitpid says.
  static int InOtherProcess(absl::FunctionRef<bool()> body) {
    const pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) _exit(body() ? 0 : 1);
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  const StorageKey key_{"trainer", {"a", 0}};
  StorageTable storages_{Arena::Pages::kSmall};
  const TemporaryFolder folder_;
  std::unique_ptr<FdServer> server_;
};

TEST_F(MemorySocketTest, WhatOneProcessWritesTheWorkerAndOtherProcessesRead) {
  MemoryClient client = Connect();
  ASSERT_OK_AND_ASSIGN(MappedStorage mapped, client.Create("trainer", "a.0", kBytes));
  EXPECT_EQ(mapped.description(), (StorageDescription{"trainer", "a.0", kBytes, 1, false}));
  std::ranges::fill(mapped.bytes(), std::byte{7});

  EXPECT_EQ(InOtherProcess([&] {
              auto other = OpenStorage(path(), "trainer", "a.0");
              if (!other.ok() || std::ssize(other->bytes()) != kBytes) return false;
              const bool same = std::ranges::all_of(
                  other->bytes(), [](std::byte byte) { return byte == std::byte{7}; });
              other->bytes().back() = std::byte{8};
              return same;
            }),
            0);
  EXPECT_EQ(mapped.bytes().back(), std::byte{8});
  ASSERT_OK_AND_ASSIGN(const auto lease, storages_.LeaseForReading(key_, kBytes));
  EXPECT_EQ(lease.bytes().front(), std::byte{7});
  EXPECT_EQ(lease.bytes().back(), std::byte{8});
}

TEST_F(MemorySocketTest, ACommitIsSeenByTheNextOpenAndNotByTheMappingsBefore) {
  MemoryClient client = Connect();
  ASSERT_OK_AND_ASSIGN(const MappedStorage first, client.Create("trainer", "a.0", kBytes));
  for (uint8_t version = 2; version <= 4; ++version) {
    ASSERT_OK_AND_ASSIGN(auto lease, storages_.LeaseForWriting(key_, kBytes, {.shadow = true}));
    ASSERT_OK_AND_ASSIGN(const MappedStorage before, client.Open("trainer", "a.0"));
    std::ranges::fill(lease.bytes(), std::byte{version});
    EXPECT_EQ(before.description().generation, version - 1);
    EXPECT_NE(before.bytes().front(), std::byte{version});

    ASSERT_OK(storages_.Commit(std::move(lease)));
    EXPECT_NE(before.bytes().front(), std::byte{version});
    ASSERT_OK_AND_ASSIGN(const MappedStorage after, client.Open("trainer", "a.0"));
    EXPECT_EQ(after.description().generation, version);
    EXPECT_EQ(after.bytes().front(), std::byte{version});
    EXPECT_EQ(after.bytes().back(), std::byte{version});
  }
  EXPECT_EQ(first.bytes().front(), std::byte{3}) << "two versions on, its memory is used again";
}

TEST_F(MemorySocketTest, WhatIsWrittenInPlaceIsToldToBeDirty) {
  MemoryClient client = Connect();
  ASSERT_OK_AND_ASSIGN(const MappedStorage mapped, client.Create("trainer", "a.0", kBytes));
  ASSERT_OK_AND_ASSIGN(auto lease, storages_.LeaseForWriting(key_, kBytes, {.shadow = false}));
  lease.BeginWriting();
  lease.bytes().front() = std::byte{1};
  EXPECT_EQ(mapped.bytes().front(), std::byte{1});
  EXPECT_TRUE(client.Open("trainer", "a.0")->description().dirty);
  ASSERT_OK(storages_.Commit(std::move(lease)));
  EXPECT_FALSE(client.Open("trainer", "a.0")->description().dirty);
}

TEST_F(MemorySocketTest, WhatIsNotThereIsRefusedAndNamed) {
  MemoryClient client = Connect();
  EXPECT_THAT(client.Open("trainer", "a.0"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("storage \"trainer\""), HasSubstr("a.0"))));
  EXPECT_THAT(client.Delete("trainer", "a.0"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(client.Open("trainer", "a"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(client.Create("trainer", "a.0", kBytes)) << "the connection goes on";
}

TEST_F(MemorySocketTest, ANameThatIsTakenWithAnotherSizeIsRefused) {
  MemoryClient client = Connect();
  ASSERT_OK(client.Create("trainer", "a.0", kBytes));
  EXPECT_OK(client.Create("trainer", "a.0", kBytes));
  EXPECT_THAT(client.Create("trainer", "a.0", kBytes + 1),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(std::to_string(kBytes))));
  EXPECT_OK(client.Create("trainer", "a.1", kBytes + 1));
}

TEST_F(MemorySocketTest, AStorageInUseIsNotDeleted) {
  MemoryClient client = Connect();
  ASSERT_OK(client.Create("trainer", "a.0", kBytes));
  {
    ASSERT_OK_AND_ASSIGN(const auto lease, storages_.LeaseForReading(key_, kBytes));
    EXPECT_THAT(client.Delete("trainer", "a.0"), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_OK(client.Delete("trainer", "a.0"));
  EXPECT_THAT(client.List(), IsOkAndHolds(testing::IsEmpty()));
}

TEST_F(MemorySocketTest, AClientThatTalksRubbishDisturbsNobody) {
  MemoryClient client = Connect();
  ASSERT_OK(client.Create("trainer", "a.0", kBytes));
  const UniqueFd stranger(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX};
  std::memcpy(address.sun_path, path().data(), path().size());
  ASSERT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const std::string& rubbish : {std::string("{"), std::string(60'000, '['),
                                     std::string("\0\xff", 2), std::string(R"({"op":"open"})")}) {
    ASSERT_EQ(send(stranger.get(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL),
              std::ssize(rubbish));
    std::string reply(kMemoryDatagramBytesMax, '\0');
    reply.resize(recv(stranger.get(), reply.data(), reply.size(), 0));
    ASSERT_OK_AND_ASSIGN(const MemoryReply decoded, DecodeMemoryReply(reply));
    EXPECT_THAT(decoded.status, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_OK(client.Open("trainer", "a.0"));
  }
}

TEST_F(MemorySocketTest, AClientThatDiesLeavesItsBytesAndNothingElse) {
  const int ended = InOtherProcess([&] {
    auto client = MemoryClient::Connect(path());
    auto mapped = client->Create("trainer", "a.0", kBytes);
    mapped->bytes().front() = std::byte{9};
    raise(SIGKILL);
    return false;
  });
  ASSERT_TRUE(WIFSIGNALED(ended));
  MemoryClient client = Connect();
  ASSERT_OK_AND_ASSIGN(const MappedStorage mapped, client.Open("trainer", "a.0"));
  EXPECT_EQ(mapped.bytes().front(), std::byte{9});
  EXPECT_OK(client.Delete("trainer", "a.0")) << "a mapping is no lease";
  EXPECT_EQ(mapped.bytes().front(), std::byte{9});
}

TEST_F(MemorySocketTest, AMappingOutlivesTheWorker) {
  MemoryClient client = Connect();
  ASSERT_OK_AND_ASSIGN(const MappedStorage mapped, client.Create("trainer", "a.0", kBytes));
  mapped.bytes().front() = std::byte{5};
  server_->Stop();
  EXPECT_THAT(client.List(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(mapped.bytes().front(), std::byte{5});
}

}  // namespace
}  // namespace crossmesh
