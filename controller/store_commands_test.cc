// The controller as a program with a store: what it exits with, and the commands for its store.

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/daemon/daemon_main.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/patience.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/sqlite/sqlite_store.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace crossmesh {
namespace {

class StoreCommandsTest : public testing::Test {
 protected:
  ChildProcess Start(std::vector<std::string> arguments) {
    return *ChildProcess::Start({.program = ProgramPath("crossmesh-controller"),
                                 .arguments = std::move(arguments),
                                 .log_path = log()});
  }
  ChildProcess StartController() {
    std::filesystem::remove(folder_.PathOf("ready"));
    return Start({"--listen", "unix:" + folder_.PathOf("socket"), "--metrics-listen", "",
                  "--state-dir", state(), "--ready-file", folder_.PathOf("ready")});
  }
  // Its epoch.
  uint64_t WaitUntilReady() {
    const Patience patience;
    while (!std::filesystem::exists(folder_.PathOf("ready"))) WaitALittle(patience);
    return nlohmann::json::parse(ReadTextFile(folder_.PathOf("ready"))).at("epoch");
  }
  std::string ExitOf(ChildProcess process) {
    const Patience patience;
    std::optional<std::string> text;
    while (!(text = process.ExitText()).has_value()) WaitALittle(patience);
    return *text;
  }
  std::string Run(std::vector<std::string> arguments) {
    return ExitOf(Start(std::move(arguments)));
  }
  // What another process does cannot be waited on.
  static void WaitALittle(const Patience& patience) {
    patience.Check();
    Mutex mutex;
    CondVar never;
    const MutexLock lock(mutex);
    never.WaitFor(mutex, absl::Milliseconds(10));
  }
  void Change(const std::string& sql) {
    ASSERT_OK_AND_ASSIGN(const auto connection,
                         SqliteConnection::Open({.path = state() + "/store.db"}));
    ASSERT_OK(connection->Execute(sql));
  }

  std::string state() const { return folder_.PathOf("state"); }
  std::string log() const { return folder_.PathOf("log"); }

  const TemporaryFolder folder_;
};

std::string Exit(int code) { return absl::StrCat("exit status ", code); }

TEST_F(StoreCommandsTest, EveryCauseHasAnExitCodeOfItsOwn) {
  {
    ChildProcess first = StartController();
    WaitUntilReady();
    EXPECT_EQ(Run({"--listen", "unix:" + folder_.PathOf("other"), "--state-dir", state()}),
              Exit(kExitStateLocked));
    EXPECT_THAT(ReadTextFile(log()),
                testing::HasSubstr(absl::StrCat("found process ", first.pid())));
    EXPECT_EQ(Run({"--listen", "unix:" + folder_.PathOf("socket")}), Exit(kExitAddressInUse));
    first.Terminate();
    EXPECT_EQ(ExitOf(std::move(first)), Exit(0));
  }
  Change("PRAGMA user_version = 99");
  EXPECT_EQ(ExitOf(StartController()), Exit(kExitStateTooNew));
  Change("PRAGMA user_version = 1; UPDATE meta SET revision = 7");
  EXPECT_EQ(ExitOf(StartController()), Exit(kExitStateDamaged));
  EXPECT_EQ(Run({"verify-store", "--state-dir", state()}), Exit(kExitStateDamaged));
  ASSERT_EQ(chmod(state().c_str(), 0777), 0);
  EXPECT_EQ(ExitOf(StartController()), Exit(kExitStateUnusable));
  EXPECT_EQ(Run({"verify-store"}), Exit(kExitUsage));
}

TEST_F(StoreCommandsTest, AStoreIsBackedUpWhileItsControllerRunsAndRestored) {
  uint64_t epoch = 0;
  {
    ChildProcess first = StartController();
    epoch = WaitUntilReady();
    EXPECT_EQ(Run({"verify-store", "--state-dir", state()}), Exit(kExitStateLocked));
    EXPECT_EQ(Run({"backup", "--state-dir", state(), folder_.PathOf("backup.db")}), Exit(0));
    first.Kill();
  }
  EXPECT_EQ(Run({"verify-store", "--state-dir", state()}), Exit(0));
  EXPECT_EQ(Run({"restore", "--state-dir", state(), folder_.PathOf("backup.db")}),
            Exit(kExitStateUnusable));
  std::filesystem::remove_all(state());
  EXPECT_EQ(Run({"restore", "--state-dir", state(), folder_.PathOf("backup.db")}), Exit(0));
  ChildProcess again = StartController();
  EXPECT_GT(WaitUntilReady(), epoch);
  again.Terminate();
  EXPECT_EQ(ExitOf(std::move(again)), Exit(0));
}

TEST_F(StoreCommandsTest, WithoutAFolderItSaysWhatThatMeans) {
  ChildProcess controller =
      Start({"--listen", "unix:" + folder_.PathOf("socket"), "--metrics-listen", "", "--ready-file",
             folder_.PathOf("ready")});
  WaitUntilReady();
  EXPECT_THAT(ReadTextFile(log()), testing::HasSubstr("state_in_memory"));
}

}  // namespace
}  // namespace crossmesh
