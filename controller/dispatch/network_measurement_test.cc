#include "controller/dispatch/network_measurement.h"

#include "common/testing/status_matchers.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

WorkerRecord WorkerOf(const std::string& name, const std::string& host,
                      const std::vector<std::string>& interfaces) {
  return {.name = name,
          .devices = {{host, 0}},
          .execution_address = "at-" + name,
          .data_interfaces = interfaces};
}

v1::RunProbeResponse ResultOf(int64_t received_bytes, int64_t bytes_per_second) {
  v1::RunProbeResponse result;
  result.set_received_bytes(received_bytes);
  result.set_bytes_per_second(bytes_per_second);
  result.set_round_trip_ns(40);
  return result;
}

// Workers that answer when told to. An endpoint's "ip" says whose it is, its port which probe's.
class FakeProbeGateway final : public ProbeGateway {
 public:
  void Open(const std::string& address, v1::OpenProbeRequest request, OnOpened on_opened) override {
    tokens_.insert(request.token());
    if (address == silent) return on_opened(absl::DeadlineExceededError("no answer"));
    v1::OpenProbeResponse opened;
    opened.set_ip(absl::StrCat(address, " ", request.interface()));
    opened.set_port(static_cast<int32_t>(tokens_.size()));
    on_opened(opened);
  }
  void Run(const std::string& address, v1::RunProbeRequest request, OnResult on_result) override {
    EXPECT_TRUE(tokens_.contains(request.token()));
    lines.push_back(absl::StrCat(address, " ", request.interface(), " > ", request.ip()));
    waiting_.push_back([this, on_result = std::move(on_result)]() mutable { on_result(result); });
  }
  // All that wait get their answer, and those that come of it as well.
  void AnswerAll() {
    while (!waiting_.empty()) AnswerOne();
  }
  size_t waiting() const { return waiting_.size(); }
  size_t tokens() const { return tokens_.size(); }
  void AnswerOne() {
    auto answer = std::move(waiting_.front());
    waiting_.pop_front();
    answer();
  }

  absl::StatusOr<v1::RunProbeResponse> result = ResultOf(100, 1000);
  std::string silent;  // address of the worker that does not answer
  std::vector<std::string> lines;

 private:
  std::deque<absl::AnyInvocable<void()>> waiting_;
  std::set<std::string> tokens_;
};

class NetworkMeasurementTest : public ::testing::Test {
 protected:
  void Start(const std::vector<WorkerRecord>& workers) {
    absl::StatusOr<ProbePlaces> places = ProbePlacesOf(workers);
    ASSERT_OK(places);
    measurement_ = NetworkMeasurement::Create(
        {.gateway = gateway_,
         .places = *std::move(places),
         .link_time = absl::Seconds(1),
         .link_bytes = 1 << 20,
         .new_token = [this] { return absl::StrCat("token", ++made_); },
         .on_progress = [this](const auto& progress) { progress_.push_back(progress); },
         .on_end =
             [this](auto result) {
               EXPECT_FALSE(end_.has_value());
               end_ = std::move(result);
             }});
    measurement_->Start();
  }
  void StartThree() {
    Start({WorkerOf("wa", "a", {"e"}), WorkerOf("wb", "b", {"e"}), WorkerOf("wc", "c", {"e"})});
  }

  FakeProbeGateway gateway_;
  int made_ = 0;
  std::shared_ptr<NetworkMeasurement> measurement_;
  std::vector<NetworkMeasurement::Progress> progress_;
  std::optional<absl::StatusOr<NetworkMeasurement::Result>> end_;
};

TEST_F(NetworkMeasurementTest, RunsRoundAfterRound) {
  StartThree();
  EXPECT_EQ(gateway_.waiting(), 3u);
  gateway_.AnswerOne();
  gateway_.AnswerOne();
  EXPECT_THAT(gateway_.lines,
              ElementsAre("at-wa e > at-wb e", "at-wc e > at-wa e", "at-wb e > at-wc e"));
  gateway_.AnswerOne();
  EXPECT_THAT(gateway_.lines, SizeIs(6));
  EXPECT_FALSE(end_.has_value());
  gateway_.AnswerAll();
  ASSERT_TRUE(end_.has_value());
  ASSERT_OK(*end_);
  EXPECT_THAT((**end_).links, SizeIs(6));
  EXPECT_THAT((**end_).failures, IsEmpty());
  EXPECT_EQ((**end_).links[0].bytes_per_second, 1000);
  EXPECT_EQ(gateway_.tokens(), 6u);
  ASSERT_THAT(progress_, SizeIs(3));
  EXPECT_EQ(progress_[1].measured_links, 3);
  EXPECT_EQ(progress_[2].links, 6);
  EXPECT_EQ(progress_[2].received_bytes, 600);
}

TEST_F(NetworkMeasurementTest, AWorkerThatDoesNotAnswerIsNamed) {
  gateway_.silent = "at-wb";
  StartThree();
  gateway_.AnswerAll();
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->status(), StatusIs(absl::StatusCode::kUnavailable,
                                       AllOf(HasSubstr("link a/e to b/e"), HasSubstr("worker wb"),
                                             HasSubstr("no answer"))));
  // The round's other links came to their end; no other round began.
  EXPECT_THAT(gateway_.lines, SizeIs(2));
}

TEST_F(NetworkMeasurementTest, AnImpossibleFigureEndsItWithTheLink) {
  gateway_.result = ResultOf(0, 0);
  StartThree();
  gateway_.AnswerAll();
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->status(),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("link a/e to b/e")));
}

TEST_F(NetworkMeasurementTest, NicsThatDoNotReachEachOtherAreToldApart) {
  gateway_.result = absl::FailedPreconditionError("no route");
  StartThree();
  gateway_.AnswerAll();
  ASSERT_TRUE(end_.has_value());
  ASSERT_OK(*end_);
  EXPECT_THAT((**end_).links, IsEmpty());
  ASSERT_THAT((**end_).failures, SizeIs(6));
  EXPECT_THAT((**end_).failures[0],
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("link a/e to b/e"), HasSubstr("no route"))));
}

TEST_F(NetworkMeasurementTest, CancelledItEndsAfterTheRound) {
  StartThree();
  measurement_->Cancel();
  EXPECT_FALSE(end_.has_value());
  gateway_.AnswerAll();
  ASSERT_TRUE(end_.has_value());
  EXPECT_THAT(end_->status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(gateway_.lines, SizeIs(3));
}

TEST(ProbePlacesTest, WorkersOfOneHostOnOneInterfaceCountOnce) {
  std::vector<WorkerRecord> workers = {WorkerOf("w1", "b", {"e", "f"}),
                                       WorkerOf("w2", "b", {"f", "g"}), WorkerOf("w3", "a", {"e"}),
                                       WorkerOf("w4", "c", {"e"}), WorkerOf("w5", "d", {"e"})};
  workers[3].state = WorkerState::kLost;
  workers[4].state = WorkerState::kDraining;
  ASSERT_OK_AND_ASSIGN(const ProbePlaces places, ProbePlacesOf(workers));
  EXPECT_THAT(places.ports, ElementsAre(ProbePort{"a", "e"}, ProbePort{"b", "e"},
                                        ProbePort{"b", "f"}, ProbePort{"b", "g"}));
  EXPECT_EQ(places.probers[2].worker, "w1");
  EXPECT_EQ(places.probers[3].address, "at-w2");
}

TEST(ProbePlacesTest, OneHostIsTooFew) {
  EXPECT_THAT(ProbePlacesOf({}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found none")));
  const std::vector<WorkerRecord> one = {WorkerOf("w1", "a", {"e"}), WorkerOf("w2", "a", {"f"})};
  EXPECT_THAT(ProbePlacesOf(one).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("host a only")));
}

TEST(ProbePlacesTest, AWorkerWithoutInterfacesIsNamed) {
  const std::vector<WorkerRecord> workers = {WorkerOf("w1", "a", {"e"}), WorkerOf("w2", "b", {})};
  EXPECT_THAT(ProbePlacesOf(workers).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("worker w2")));
}

}  // namespace
}  // namespace crossmesh
