// Rates of one tensor moved between two workers over TCP, with checksums and without, and
// between two slots of one worker beside memcpy of the same memory. Prints one line of JSON; the
// script `run` sets it beside ucx_perftest.

#include "tests/benchmark/benchmark_worker.h"
#include "tests/benchmark/measure.h"
#include "worker/data_transport.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/functional/function_ref.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct Options {
  int64_t mebibytes = 256;
  int repeats = 3;
  std::string interface = "lo";
  bool ucx = false;

  DataTransportOptions transport() const {
    return {.kind = ucx ? DataTransport::kUcx : DataTransport::kSocket,
            .interfaces = {interface},
            .shared_memory = false};
  }
};

class Transfers {
 public:
  explicit Transfers(const Options& options)
      : options_(options),
        bytes_(options.mebibytes << 20),
        source_(FilledArena(bytes_, std::byte{1})),
        destination_(FilledArena(bytes_, std::byte{0})),
        to_other_worker_(PlanOfOneTensor("b.0", bytes_)),
        to_other_slot_(PlanOfOneTensor("a.1", bytes_)),
        a_(options.transport()),
        b_(options.transport()) {}

  nlohmann::json Measure() {
    std::vector<double> plain, checked, slots, copied;
    for (int i = 0; i < 1 + options_.repeats; ++i) {
      const double rates[] = {Rate([&] { RunBetweenWorkers(false); }),
                              Rate([&] { RunBetweenWorkers(true); }),
                              Rate([&] { RunBetweenSlots(); }), Rate([&] { Copy(); })};
      if (i == 0) continue;  // pages and caches are warm from here on
      plain.push_back(rates[0]);
      checked.push_back(rates[1]);
      slots.push_back(rates[2]);
      copied.push_back(rates[3]);
    }
    return {{"tcp", MedianOf(plain)},
            {"tcp_checksums", MedianOf(checked)},
            {"slots", MedianOf(slots)},
            {"memcpy", MedianOf(copied)}};
  }

 private:
  double Rate(absl::FunctionRef<void()> work) const {
    return static_cast<double>(bytes_) / SecondsOf(work);
  }

  void RunBetweenWorkers(bool checksums) {
    RunPlan({.plan = to_other_worker_,
             .workers = {&a_, &b_},
             .devices_of_worker = {{{"a", 0}}, {{"b", 0}}},
             .source = source_->bytes().data(),
             .destination = destination_->bytes().data(),
             .checksums = checksums});
  }

  void RunBetweenSlots() {
    RunPlan({.plan = to_other_slot_,
             .workers = {&a_},
             .devices_of_worker = {{{"a", 0}, {"a", 1}}},
             .source = source_->bytes().data(),
             .destination = destination_->bytes().data(),
             .checksums = false});
  }

  void Copy() { std::memcpy(destination_->bytes().data(), source_->bytes().data(), bytes_); }

  const Options options_;
  const int64_t bytes_;
  const std::shared_ptr<Arena> source_;
  const std::shared_ptr<Arena> destination_;
  const Plan to_other_worker_;
  const Plan to_other_slot_;
  BenchmarkWorker a_;
  BenchmarkWorker b_;
};

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::Options options;
  CLI::App app("Rates of one tensor between two workers over TCP, and between slots of one worker");
  app.add_option("--mebibytes", options.mebibytes, "Size of the tensor");
  app.add_option("--repeats", options.repeats, "Transfers of each kind; medians are printed");
  app.add_option("--interface", options.interface, "Network interface");
  app.add_flag("--ucx", options.ucx, "By UCX instead of sockets");
  CLI11_PARSE(app, argc, argv);
  std::printf("%s\n", crossmesh::Transfers(options).Measure().dump().c_str());
}
