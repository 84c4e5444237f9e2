#include "common/memory_protocol/memory_protocol.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <random>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(MemoryProtocol, RequestsSurviveTheWire) {
  using Op = MemoryRequest::Op;
  for (const MemoryRequest& request : {
           MemoryRequest{
               .op = Op::kCreate, .storage = "trainer", .device = "a.0", .bytes = 1 << 30},
           MemoryRequest{.op = Op::kOpen, .storage = "tr\"ainer", .device = "a.0"},
           MemoryRequest{.op = Op::kDelete, .storage = "trainer", .device = "a.0"},
           MemoryRequest{.op = Op::kTrim, .storage = "trainer", .device = "a.0"},
           MemoryRequest{.op = Op::kLend, .storage = "pool-0", .device = "a.1", .bytes = 1 << 21},
           MemoryRequest{.op = Op::kLend,
                         .storage = "pool-0",
                         .device = "a.1",
                         .bytes = 1 << 21,
                         .generation = 2,
                         .ipc_handle = std::string("\0\xff", 2) + std::string(62, 'x')},
           MemoryRequest{.op = Op::kBind,
                         .storage = "weights",
                         .device = "a.1",
                         .bytes = 4096,
                         .generation = 3},
           MemoryRequest{.op = Op::kList},
       }) {
    EXPECT_THAT(DecodeMemoryRequest(Encode(request)), IsOkAndHolds(request));
  }
}

TEST(MemoryProtocol, RepliesSurviveTheWire) {
  const MemoryReply reply{.status = absl::NotFoundError("no such storage"),
                          .storages = {{"trainer", "a.0", 64, 3, true, "GPU-1", 128}}};
  EXPECT_THAT(DecodeMemoryReply(Encode(reply)), IsOkAndHolds(reply));
}

TEST(MemoryProtocol, AListThatDoesNotFitIsCut) {
  MemoryReply reply;
  for (int i = 0; i < 10'000; ++i) reply.storages.push_back({absl::StrCat("storage-", i), "a.0"});
  const std::string datagram = Encode(reply);
  EXPECT_LE(std::ssize(datagram), kMemoryDatagramBytesMax);
  ASSERT_OK_AND_ASSIGN(const MemoryReply decoded, DecodeMemoryReply(datagram));
  EXPECT_FALSE(decoded.complete);
  EXPECT_GT(decoded.storages.size(), 100U);
}

TEST(MemoryProtocol, NamesTheFieldThatIsWrong) {
  const auto error = [](const std::string& datagram, const std::string& text) {
    EXPECT_THAT(DecodeMemoryRequest(datagram), IsRefused(text)) << datagram;
  };
  error("", "JSON object");
  error("[]", "JSON object");
  error(R"({"op":"format"})", "\"op\"");
  error(R"({"op":7})", "\"op\"");
  error(R"({"op":"open"})", "\"storage\"");
  error(R"({"op":"open","storage":""})", "\"storage\"");
  error(R"({"op":"open","storage":"s"})", "\"device\"");
  error(R"({"op":"create","storage":"s","device":"a.0"})", "\"bytes\"");
  error(R"({"op":"lend","storage":"s","device":"a.0"})", "\"bytes\"");
  error(R"({"op":"bind","storage":"s","device":"a.0","bytes":1})", "\"generation\"");
  error(R"({"op":"lend","storage":"s","device":"a.0","bytes":1,"generation":-1})",
        "\"generation\"");
  for (const std::string& handle :
       {std::string("0a"), std::string(127, '0'), std::string(128, 'g'), std::string(130, '0')}) {
    error(absl::StrCat(R"({"op":"lend","storage":"s","device":"a.0","bytes":1,"ipc_handle":")",
                       handle, R"("})"),
          "\"ipc_handle\" of a memory datagram: expected 128 hex digits");
  }
  error(R"({"op":"create","storage":"s","device":"a.0","bytes":-1})", "\"bytes\"");
  error(R"({"op":"create","storage":"s","device":"a.0","bytes":1.5})", "\"bytes\"");
  error(R"({"op":"create","storage":"s","device":"a.0","bytes":18446744073709551615})",
        "\"bytes\"");
  error(absl::StrCat(R"({"op":"open","storage":")", std::string(256, 'x'), R"("})"), "\"storage\"");
}

TEST(MemoryProtocol, SurvivesRandomDatagrams) {
  std::mt19937_64 random(1);
  const std::string good = Encode(MemoryReply{.storages = {{"trainer", "a.0", 64, 3, true}}});
  for (int i = 0; i < 20'000; ++i) {
    std::string datagram = good;
    for (uint64_t change = random() % 4 + 1; change > 0; --change) {
      datagram[random() % datagram.size()] = static_cast<char>(random());
    }
    (void)DecodeMemoryReply(datagram);
    (void)DecodeMemoryRequest(datagram);
  }
}

}  // namespace
}  // namespace crossmesh
