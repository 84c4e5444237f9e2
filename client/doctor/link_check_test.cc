#include "client/doctor/link_check.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using State = HostCheck::State;
using Result = v1::MeasureNetworkResponse::Result;

void Describe(Result& result, const std::string& host, int64_t rate) {
  v1::Host& described = *result.mutable_network()->mutable_topology()->add_hosts();
  described.set_name(host);
  v1::Nic& nic = *described.add_nics();
  nic.set_name("eth0");
  nic.set_out_bytes_per_second(rate);
  nic.set_in_bytes_per_second(rate);
}

void AddLink(Result& result, const std::string& from, const std::string& to, int64_t rate) {
  v1::MeasureNetworkResponse::Link& link = *result.add_links();
  link.set_from(from);
  link.set_to(to);
  link.set_bytes_per_second(rate);
  link.set_latency_ns(20'000);
}

TEST(LinkCheckTest, TheProbeIsShortAndKeepsTheDescription) {
  const v1::MeasureNetworkRequest request = ShortProbe();
  EXPECT_TRUE(request.keep_description());
  EXPECT_EQ(request.link_time().seconds(), 0);
}

TEST(LinkCheckTest, SaysHowFastTheSlowestAndTheFastestAre) {
  Result result;
  AddLink(result, "a/eth0", "b/eth0", 1'000'000'000);
  AddLink(result, "b/eth0", "a/eth0", 3'000'000'000);
  const HostCheck check = CheckLinks(result);
  EXPECT_EQ(check.state, State::kGood);
  EXPECT_EQ(check.found, "2 at 1.0 GB/s (a/eth0 to b/eth0) to 3.0 GB/s, at most 20.0 us one way");
  EXPECT_THAT(check.advice, IsEmpty());
}

TEST(LinkCheckTest, NotesALinkFarBelowItsDescription) {
  Result result;
  Describe(result, "a", 1000);
  Describe(result, "b", 3000);
  AddLink(result, "a/eth0", "b/eth0", 499);
  AddLink(result, "b/eth0", "a/eth0", 500);
  AddLink(result, "c/eth0", "a/eth0", 1);
  const HostCheck check = CheckLinks(result);
  EXPECT_EQ(check.state, State::kNote);
  EXPECT_THAT(check.advice, HasSubstr("a/eth0 to b/eth0: described as 1.0 kB/s, found 499 B/s"));
  EXPECT_THAT(check.advice, Not(HasSubstr("b/eth0 to a/eth0")));
  EXPECT_THAT(check.advice, Not(HasSubstr("c/eth0")));
}

TEST(LinkCheckTest, NotesWhatTheMeasurementWarnsOf) {
  Result result;
  AddLink(result, "a/eth0", "b/eth0", 1000);
  result.add_warnings("operations ran meanwhile");
  const HostCheck check = CheckLinks(result);
  EXPECT_EQ(check.state, State::kNote);
  EXPECT_EQ(check.advice, "operations ran meanwhile");
}

TEST(LinkCheckTest, NoLinkThatCanBeUsedIsAProblem) {
  Result result;
  result.add_warnings("link a/eth0 to b/eth0: no route");
  const HostCheck check = CheckLinks(result);
  EXPECT_EQ(check.state, State::kProblem);
  EXPECT_THAT(check.advice, HasSubstr("no route"));
}

TEST(LinkCheckTest, WhatBreaksIsAProblemAndWhatCouldNotBeTriedIsNot) {
  const HostCheck broken = CheckLinks(absl::UnavailableError("worker w-c: nothing more came"));
  EXPECT_EQ(broken.state, State::kProblem);
  EXPECT_EQ(broken.found, "worker w-c: nothing more came");
  EXPECT_EQ(CheckLinks(absl::FailedPreconditionError("expected two hosts or more")).state,
            State::kNote);
}

}  // namespace
}  // namespace crossmesh
