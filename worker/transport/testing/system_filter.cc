#include "worker/transport/testing/system_filter.h"

#include "common/base/check.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace crossmesh {
namespace {

constexpr size_t kNumber = offsetof(seccomp_data, nr);
// The lower half of an argument, on processors with little endian numbers.
constexpr size_t Argument(size_t index) { return offsetof(seccomp_data, args) + 8 * index; }

constexpr sock_filter Load(size_t offset) {
  return {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
}
constexpr sock_filter SkipUnless(uint32_t value, uint8_t skipped) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, value};
}
constexpr sock_filter Return(uint32_t action) { return {BPF_RET | BPF_K, 0, 0, action}; }

void Install(std::span<sock_filter> program) {
  const sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                          .filter = program.data()};
  CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0) << "errno " << errno;
  CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0) << "errno " << errno;
}

}  // namespace

void FilterSiblingReads(uint32_t action) {
  std::array<sock_filter, 4> program = {Load(kNumber), SkipUnless(SYS_process_vm_readv, 1),
                                        Return(action), Return(SECCOMP_RET_ALLOW)};
  Install(program);
}

void FilterSharedMappings(uint32_t action) {
  std::array<sock_filter, 8> program = {
      Load(kNumber),     SkipUnless(SYS_mmap, 5),   Load(Argument(2)), SkipUnless(PROT_READ, 3),
      Load(Argument(3)), SkipUnless(MAP_SHARED, 1), Return(action),    Return(SECCOMP_RET_ALLOW)};
  Install(program);
}

}  // namespace crossmesh
