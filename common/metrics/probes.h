#pragma once

#include <functional>
#include <string>

namespace crossmesh {

// What is answered to those who probe a daemon over HTTP: 200 or 503, and a line that says why.
struct ProbeAnswer {
  bool is_good = true;
  std::string reason;
};

// Whether it has to be started again; whether work may be sent to it; whether it has begun to
// serve. Called by any thread.
struct Probes {
  std::function<ProbeAnswer()> live;
  std::function<ProbeAnswer()> ready;
  std::function<ProbeAnswer()> started;
};

}  // namespace crossmesh
