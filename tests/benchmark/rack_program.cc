#include "tests/benchmark/rack_program.h"

#include "common/base/check.h"
#include "planner/network/bound.h"

#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <Clp_C_Interface.h>

namespace crossmesh {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// "least <= sum of factor * variable <= most"
struct Row {
  double least = -kInfinity;
  double most = kInfinity;
  std::vector<std::pair<int, double>> terms;  // (variable, factor)
};

// Minimises its first variable.
class LinearProgram {
 public:
  // Between `least` and `most`.
  int AddVariable(double least, double most) {
    least_.push_back(least);
    most_.push_back(most);
    return static_cast<int>(least_.size()) - 1;
  }
  void AddRow(Row row) { rows_.push_back(std::move(row)); }

  double Solve() const {
    const int variables = static_cast<int>(least_.size());
    std::vector<std::vector<std::pair<int, double>>> columns(variables);
    std::vector<double> row_least, row_most;
    for (size_t r = 0; r < rows_.size(); ++r) {
      row_least.push_back(rows_[r].least);
      row_most.push_back(rows_[r].most);
      for (const auto& [variable, factor] : rows_[r].terms) {
        columns[variable].emplace_back(static_cast<int>(r), factor);
      }
    }
    std::vector<int> start = {0}, index;
    std::vector<double> value, objective(variables);
    objective[0] = 1;
    for (const auto& column : columns) {
      for (const auto& [row, factor] : column) {
        index.push_back(row);
        value.push_back(factor);
      }
      start.push_back(static_cast<int>(index.size()));
    }
    const std::unique_ptr<Clp_Simplex, decltype(&Clp_deleteModel)> model(Clp_newModel(),
                                                                         &Clp_deleteModel);
    Clp_setLogLevel(model.get(), 0);
    Clp_loadProblem(model.get(), variables, static_cast<int>(rows_.size()), start.data(),
                    index.data(), value.data(), least_.data(), most_.data(), objective.data(),
                    row_least.data(), row_most.data());
    Clp_initialSolve(model.get());
    CHECK(Clp_status(model.get()) == 0) << "status " << Clp_status(model.get());
    return Clp_objectiveValue(model.get());
  }

 private:
  std::vector<double> least_;
  std::vector<double> most_;
  std::vector<Row> rows_;
};

// Rows of ports, which all demands share: bytes of copies <= time * rate. Time is variable 0, in
// units of `unit_seconds`.
class Ports {
 public:
  Ports(const PortRates& rates, double unit_seconds) {
    for (const auto& [ports, of] : {std::pair(&out_, &rates.out), std::pair(&in_, &rates.in)}) {
      for (const int64_t rate : *of) {
        const double bytes = unit_seconds * static_cast<double>(rate);
        ports->push_back({.row = {.most = 0, .terms = {{0, -1}}}, .bytes = bytes});
      }
    }
  }

  void AddOut(int32_t place, int variable, int64_t bytes) { Add(out_[place], variable, bytes); }
  void AddIn(int32_t place, int variable, int64_t bytes) { Add(in_[place], variable, bytes); }

  void AddRowsTo(LinearProgram& program) const {
    for (const auto* ports : {&out_, &in_}) {
      for (const Port& port : *ports) {
        if (port.bytes > 0) program.AddRow(port.row);
      }
    }
  }

 private:
  struct Port {
    Row row;
    double bytes;  // in the unit of time; 0: never limits anything
  };

  static void Add(Port& port, int variable, int64_t bytes) {
    if (port.bytes == 0) return;
    port.row.terms.emplace_back(variable, static_cast<double>(bytes) / port.bytes);
  }

  std::vector<Port> out_;
  std::vector<Port> in_;
};

// The variables and rows of one demand. Variables count copies of the demand's bytes.
class DemandRows {
 public:
  DemandRows(const Demands& demands, const Demand& demand, const HostNetwork& network)
      : bytes_(demand.bytes), receivers_(std::ssize(demands.receivers(demand))) {
    const std::vector<int32_t>& rack_of_host = network.rack_of_host;
    for (const int32_t h : demands.holders(demand)) racks_[rack_of_host[h]].holders.push_back(h);
    for (const int32_t h : demands.receivers(demand)) {
      racks_[rack_of_host[h]].receivers.push_back(h);
    }
  }

  void AddTo(LinearProgram& program, Ports& hosts, Ports& racks) && {
    for (auto& [number, rack] : racks_) {
      if (!rack.receivers.empty()) AddInside(rack, program, hosts);
      AddCrossing(number, rack, program, hosts, racks);
      if (!rack.receivers.empty()) AddArrival(number, rack, program, racks);
    }
    for (auto& [number, rack] : racks_) {
      for (const auto& [other, arrival] : arrivals_) {
        if (other != number) rack.left_for_others.terms.emplace_back(arrival, -1);
      }
      program.AddRow(std::move(rack.left_for_others));
    }
    program.AddRow(std::move(crossings_));
    program.AddRow(std::move(of_holders_));
    if (some_rack_holds_nothing_) program.AddRow(std::move(out_of_holder_racks_));
  }

 private:
  struct Rack {
    std::vector<int32_t> holders;
    std::vector<int32_t> receivers;
    Row into;                        // local copies and arrivals: one for each receiver
    Row first_into{.least = 1};      // of them, first local copies and arrivals
    Row left_for_others{.most = 0};  // crossing copies - arrivals in other racks
  };

  static int Add(LinearProgram& program, double most, std::initializer_list<Row*> rows) {
    const int variable = program.AddVariable(0, most);
    for (Row* row : rows) row->terms.emplace_back(variable, 1);
    return variable;
  }

  // Copies inside the rack, the first and further ones.
  void AddInside(Rack& rack, LinearProgram& program, Ports& hosts) {
    const double others = static_cast<double>(rack.receivers.size()) - 1;
    rack.into.least = rack.into.most = others + 1;
    for (const int32_t h : rack.holders) {
      hosts.AddOut(h, Add(program, kInfinity, {&rack.into, &rack.first_into, &of_holders_}),
                   bytes_);
      hosts.AddOut(h, Add(program, kInfinity, {&rack.into, &of_holders_}), bytes_);
    }
    for (const int32_t h : rack.receivers) {
      hosts.AddOut(h, Add(program, others, {&rack.into}), bytes_);
    }
  }

  void AddCrossing(int32_t number, Rack& rack, LinearProgram& program, Ports& hosts, Ports& racks) {
    const auto add = [&](int32_t host, double most, std::initializer_list<Row*> rows) {
      const int variable = Add(program, most, rows);
      rack.left_for_others.terms.emplace_back(variable, 1);
      crossings_.terms.emplace_back(variable, -1);
      if (!rack.holders.empty()) out_of_holder_racks_.terms.emplace_back(variable, 1);
      hosts.AddOut(host, variable, bytes_);
      racks.AddOut(number, variable, bytes_);
    };
    const double outside = static_cast<double>(receivers_ - std::ssize(rack.receivers));
    for (const int32_t h : rack.holders) add(h, kInfinity, {&of_holders_});
    for (const int32_t h : rack.receivers) add(h, outside, {});
  }

  void AddArrival(int32_t number, Rack& rack, LinearProgram& program, Ports& racks) {
    some_rack_holds_nothing_ |= rack.holders.empty();
    const int variable = Add(program, kInfinity, {&rack.into, &rack.first_into, &crossings_});
    racks.AddIn(number, variable, bytes_);
    arrivals_.emplace_back(number, variable);
    program.AddRow(std::move(rack.into));
    program.AddRow(std::move(rack.first_into));
  }

  const int64_t bytes_;
  const int64_t receivers_;
  std::map<int32_t, Rack> racks_;
  std::vector<std::pair<int32_t, int>> arrivals_;  // (rack, variable)
  bool some_rack_holds_nothing_ = false;           // that needs it
  Row crossings_{.least = 0, .most = 0};           // arrivals - crossing copies
  Row of_holders_{.least = 1};
  Row out_of_holder_racks_{.least = 1};
};

}  // namespace

double RackProgramSeconds(const Demands& demands, const HostNetwork& network) {
  CHECK(network.has_racks());
  const ExactBound bound = ComputeBound(demands, network);
  const double unit_seconds = bound.seconds().ToDouble();
  if (unit_seconds == 0) return 0;
  LinearProgram program;
  program.AddVariable(bound.ingress.seconds.ToDouble() / unit_seconds, kInfinity);
  Ports hosts(network.host_rates, unit_seconds), racks(network.rack_rates, unit_seconds);
  for (const Demand& demand : demands.demands) {
    DemandRows(demands, demand, network).AddTo(program, hosts, racks);
  }
  hosts.AddRowsTo(program);
  racks.AddRowsTo(program);
  return program.Solve() * unit_seconds;
}

}  // namespace crossmesh
