#pragma once

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/process/gpu_process.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/protocol/testing/run_until.h"

#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

// What a GpuProcess tells.
struct Told {
  GpuProcess::Handlers handlers() {
    return {.on_up = [this](const PreflightReport& preflight) { ups.push_back(preflight); },
            .on_arena_lost = [this](ArenaId arena,
                                    const absl::Status& why) { lost.emplace_back(arena, why); },
            .on_down = [this](const absl::Status& why) { downs.push_back(why); },
            .on_given_up = [this](const absl::Status& why) { given_up.push_back(why); }};
  }

  std::vector<PreflightReport> ups;
  std::vector<std::pair<ArenaId, absl::Status>> lost;
  std::vector<absl::Status> downs;
  std::vector<absl::Status> given_up;
};

// Processes of GPUs of the stand-in, on one loop whose time stands still unless a test moves it.
// What is done wrong in a process fails the test.
class GpuProcessTest : public testing::Test {
 protected:
  struct Child {
    Told told;
    std::unique_ptr<GpuProcess> process;
    uint64_t tickets = 0;

    RankName rank() const { return told.ups.back().rank; }
  };

  void TearDown() override {
    for (Child& child : children_) {
      if (child.process != nullptr) child.process->Stop();
    }
    std::stringstream violations;
    violations << std::ifstream(folder_.PathOf("violations")).rdbuf();
    EXPECT_EQ(violations.str(), "");
  }

  // For a GPU of this number.
  GpuProcessOptions OptionsOf(int number, std::map<std::string, std::string> environment = {}) {
    environment.emplace("CROSSMESH_STANDIN_FIRST_DEVICE", absl::StrCat(number));
    environment.emplace("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath());
    environment.emplace("CROSSMESH_STANDIN_REPORT", folder_.PathOf("violations"));
    GpuProcessOptions options = {.gpu = StandInUuid(number),
                                 .program = ProgramPath("crossmesh-gpu"),
                                 .driver_library = StandInDriverPath(),
                                 .nccl_library = StandInNcclPath(),
                                 .staging_bytes = ByteCount(8 << 20)};
    for (const auto& [name, value] : environment) {
      options.environment.push_back(absl::StrCat(name, "=", value));
    }
    return options;
  }

  Child& Start(GpuProcessOptions options) {
    Child& child = children_.emplace_back();
    child.process =
        std::make_unique<GpuProcess>(*loop_, clock_, std::move(options), child.told.handlers());
    child.process->Start();
    return child;
  }
  Child& StartUp(GpuProcessOptions options) {
    Child& child = Start(std::move(options));
    AwaitUps(child, 1);
    return child;
  }

  // With Patience.
  void RunUntil(absl::FunctionRef<bool()> condition,
                std::source_location where = std::source_location::current()) {
    crossmesh::RunUntil(*loop_, condition, where);
  }
  void AwaitUps(Child& child, size_t count) {
    RunUntil([&] { return child.told.ups.size() >= count || !child.told.given_up.empty(); });
    ASSERT_THAT(child.told.given_up, testing::IsEmpty());
  }
  // Until another process has taken the place of one that is lost.
  void AwaitReplacement(Child& child) {
    const size_t ups = child.told.ups.size();
    RunUntil([&] { return child.process->pid() < 0; });
    clock_.Advance(absl::Seconds(30));
    AwaitUps(child, ups + 1);
  }

  // What a request comes to.
  struct Result {
    std::optional<absl::StatusOr<GpuProcess::Reply>> reply;

    const absl::Status& status() const { return reply->status(); }
  };
  std::shared_ptr<Result> Begin(Child& child, v1::GpuRequest request,
                                UniqueFd descriptor = UniqueFd()) {
    auto result = std::make_shared<Result>();
    child.process->Call(std::move(request), std::move(descriptor),
                        {.done = [result](absl::StatusOr<GpuProcess::Reply> reply) {
                          result->reply.emplace(std::move(reply));
                        }});
    return result;
  }
  void Await(const Result& result) {
    RunUntil([&] { return result.reply.has_value(); });
  }

  absl::StatusOr<ArenaId> MakeArena(Child& child, int64_t bytes) {
    std::optional<absl::StatusOr<ArenaId>> made;
    child.process->CreateArena(ByteCount(bytes),
                               [&](absl::StatusOr<ArenaId> arena) { made = std::move(arena); });
    RunUntil([&] { return made.has_value(); });
    return *made;
  }

  std::string MintIdAt(Child& child) {
    const auto minted = Begin(child, MintCommunicatorIdRequest());
    Await(*minted);
    EXPECT_OK(minted->status());
    return (*minted->reply)->answer.minted().id();
  }
  static CommunicatorKey KeyOf(const std::vector<Child*>& children) {
    CommunicatorKey key = {.ranks = {}, .purpose = "relay", .epoch = 1};
    for (const Child* child : children) key.ranks.push_back(child->rank());
    return key;
  }
  // Orders a communicator at all of them, and waits for the answers.
  std::vector<absl::Status> CreateCommunicator(const std::vector<Child*>& children) {
    const std::string id = MintIdAt(*children.front());
    std::vector<std::shared_ptr<Result>> results;
    for (Child* child : children) {
      const CommunicatorOrder order = {.key = KeyOf(children), .ticket = ++child->tickets};
      results.push_back(Begin(*child, CreateCommunicatorRequest(order, id)));
    }
    return StatusesOf(results);
  }
  std::vector<absl::Status> DestroyCommunicator(const std::vector<Child*>& children) {
    std::vector<std::shared_ptr<Result>> results;
    for (Child* child : children) {
      results.push_back(Begin(*child, DestroyCommunicatorRequest(
                                          {.key = KeyOf(children), .ticket = ++child->tickets})));
    }
    return StatusesOf(results);
  }
  std::vector<absl::Status> StatusesOf(const std::vector<std::shared_ptr<Result>>& results) {
    std::vector<absl::Status> statuses;
    for (const auto& result : results) {
      Await(*result);
      statuses.push_back(result->status());
    }
    return statuses;
  }

  const TemporaryFolder folder_;
  FakeClock clock_;
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::list<Child> children_;
};

}  // namespace crossmesh
