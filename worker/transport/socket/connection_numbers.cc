#include "worker/transport/socket/connection_numbers.h"

namespace crossmesh {

uint64_t ConnectionNumbers::Next() {
  const uint64_t number = ++last_;
  Advance();
  return number;
}

void ConnectionNumbers::Skip(uint64_t number) {
  if (!MayBegin(number)) return;
  ended_.insert(number);
  Advance();
}

void ConnectionNumbers::Advance() {
  while (ended_.erase(last_ + 1) > 0) ++last_;
}

}  // namespace crossmesh
