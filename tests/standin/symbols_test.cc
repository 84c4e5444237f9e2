// What the stand-ins export, against the lists of what the product loads.

#include "common/testing/status_matchers.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/libraries/driver_symbols.h"
#include "worker/gpu/libraries/m2n_api.h"
#include "worker/gpu/libraries/nccl_symbols.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/match.h>
#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// [begin, end) of the symbols that a library defines, by its hash table (DT_GNU_HASH): it lists
// these alone, at the end of all symbols, in chains of which the last entry is odd.
std::pair<uint32_t, uint32_t> Defined(const uint32_t* table) {
  const uint32_t bucket_count = table[0], first = table[1], filter_words = table[2];
  const uint32_t* const buckets = table + 4 + 2 * filter_words;
  const uint32_t* const chains = buckets + bucket_count;
  uint32_t last = *std::max_element(buckets, chains);
  if (last < first) return {first, first};
  while (chains[last - first] % 2 == 0) ++last;
  return {first, last + 1};
}

// Names that a loaded library defines, but for the control of a stand-in.
std::set<std::string> ExportsOf(const std::string& path) {
  auto* const map = static_cast<link_map*>(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD));
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  const uint32_t* hashes = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) hashes = reinterpret_cast<uint32_t*>(entry->d_un.d_ptr);
  }
  std::set<std::string> exports;
  const auto [begin, end] = Defined(hashes);
  for (const ElfW(Sym) & symbol : std::span(symbols + begin, symbols + end)) {
    const std::string name = names + symbol.st_name;
    if (!absl::StartsWith(name, "crossmeshStandIn") && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
      exports.insert(name);
    }
  }
  return exports;
}

#define CROSSMESH_NAME(symbol) CROSSMESH_SYMBOL_NAME(symbol),

// By which user processes make the memory that they lend, and order their streams with operations.
#define CROSSMESH_USERS_SYMBOLS(X) \
  X(cuIpcGetMemHandle) X(cuMemAlloc) X(cuMemFree) X(cuStreamWriteValue64)

TEST(SymbolsTest, TheDriversStandInHasWhatTheProductAndItsUsersCallAndNoMore) {
  ASSERT_OK(StandIn::Load());
  const std::set<std::string> called = {CROSSMESH_DRIVER_SYMBOLS(CROSSMESH_NAME)
                                            CROSSMESH_USERS_SYMBOLS(CROSSMESH_NAME)};
  EXPECT_EQ(ExportsOf(StandInDriverPath()), called);
}

TEST(SymbolsTest, NcclsStandInHasWhatTheProductLoadsAndNoMore) {
  ASSERT_OK(StandIn::Load());
  const std::set<std::string> loaded = {CROSSMESH_NCCL_SYMBOLS(CROSSMESH_NAME)
                                            CROSSMESH_OPTIONAL_NCCL_SYMBOLS(CROSSMESH_NAME)};
  EXPECT_EQ(ExportsOf(StandInNcclPath()), loaded);
}

TEST(SymbolsTest, M2nsStandInHasWhatTheProductLoadsAndNoMore) {
  ASSERT_OK_AND_ASSIGN(const auto stand_in, StandIn::Load());
  ASSERT_OK(M2nApi::Load(stand_in->nccl(), {.library = StandInM2nPath()}));
  const std::set<std::string> loaded = {CROSSMESH_M2N_SYMBOLS(CROSSMESH_NAME)};
  EXPECT_EQ(ExportsOf(StandInM2nPath()), loaded);
}

TEST(SymbolsTest, ReportsSayThatItIsAStandIn) {
  ASSERT_OK_AND_ASSIGN(const auto stand_in, StandIn::Load());
  EXPECT_EQ(stand_in->driver().description(),
            "CUDA driver 13.0, " + StandInDriverPath() + ", Crossmesh stand-in");
  EXPECT_EQ(stand_in->nccl().description(),
            "NCCL 2.30.7, " + StandInNcclPath() + ", Crossmesh stand-in");
  EXPECT_THAT(stand_in->nccl().ncclGetErrorString(ncclRemoteError),
              HasSubstr("Crossmesh stand-in"));
}

}  // namespace
}  // namespace crossmesh
