#include "examples/tensor_parallel_training/device_parameters.h"

#include "common/base/check.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

// The elements of another one, in a row.
void Append(const Matrix& values, Matrix& all) {
  const Eigen::Index before = all.size();
  all.conservativeResize(1, before + values.size());
  all.rightCols(values.size()) = Eigen::Map<const Matrix>(values.data(), 1, values.size());
}

}  // namespace

DeviceParameters::DeviceParameters(const DeviceRole& role, const Tensors& whole)
    : role_(role), parameters_(ParametersOf(role.settings, role.stage)) {
  for (const Parameter& part : StateOf(role.settings, role.stage)) {
    stored_[part.name] = CutParameter(role_, part, whole.find(part.name)->second);
  }
  DropStep();
}

int64_t DeviceParameters::BlockElements(const MatrixUse& use) const {
  return stored(use.key).size() * role_.OnPart(use.part).grid.z();
}

absl::StatusOr<Matrix> DeviceParameters::Block(const MatrixUse& use) const {
  const Matrix* elements = &stored(use.key);
  const Grid& grid = role_.OnPart(use.part).grid;
  if (grid.z() > 1) {
    const auto found = gathered_.find(use.key);
    if (found == gathered_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("weights of ", use.key, ": expected them gathered, found a part"));
    }
    elements = &found->second;
  }
  return Matrix(Eigen::Map<const Matrix>(elements->data(), use.matrix.k / grid[use.summed],
                                         use.matrix.n / grid[use.columns]));
}

void DeviceParameters::KeepGathered(const MatrixUse& use, Matrix elements) {
  gathered_[use.key] = std::move(elements);
}

const Matrix& DeviceParameters::Vector(absl::string_view name) const {
  const auto found = spread_.find(name);
  return found == spread_.end() ? stored(name) : found->second;
}

template <typename Visit>
void DeviceParameters::VisitDiagonal(GridAxis axis, Visit visit) const {
  for (const Parameter& parameter : parameters_) {
    if (IsOnDiagonal(role_, parameter) && parameter.column_axis == axis) visit(parameter);
  }
}

Matrix DeviceParameters::DiagonalVectors(GridAxis axis) const {
  Matrix all(1, 0);
  VisitDiagonal(axis, [&](const Parameter& parameter) { Append(stored(parameter.name), all); });
  return all;
}

int64_t DeviceParameters::DiagonalElements(GridAxis axis) const {
  int64_t elements = 0;
  VisitDiagonal(axis, [&](const Parameter& parameter) { elements += parameter.columns; });
  return elements / diagonal_grid()[axis];
}

void DeviceParameters::SpreadVectors(GridAxis axis, const Matrix& all) {
  Eigen::Index next = 0;
  for (int64_t z = 0; z < diagonal_grid().z(); ++z) {
    VisitDiagonal(axis, [&](const Parameter& parameter) {
      const Eigen::Index columns = parameter.columns / diagonal_grid()[axis];
      const Eigen::Index part = columns / diagonal_grid().z();
      Matrix& vector = spread_[parameter.name];
      vector.resize(1, columns);
      vector.middleCols(z * part, part) = all.middleCols(next, part);
      next += part;
    });
  }
}

Matrix DeviceParameters::DiagonalGradients(GridAxis axis) const {
  Matrix all(1, 0);
  for (int64_t z = 0; z < diagonal_grid().z(); ++z) {
    VisitDiagonal(axis, [&](const Parameter& parameter) {
      const Matrix& one = gradient(parameter.name);
      const Eigen::Index part = one.size() / diagonal_grid().z();
      Append(one.middleCols(z * part, part), all);
    });
  }
  return all;
}

void DeviceParameters::SetDiagonalGradients(GridAxis axis, const Matrix& sum) {
  Eigen::Index next = 0;
  VisitDiagonal(axis, [&](const Parameter& parameter) {
    const Eigen::Index elements = stored(parameter.name).size();
    reduced_[parameter.name] = sum.middleCols(next, elements);
    next += elements;
  });
}

void DeviceParameters::AddGradient(absl::string_view name, const Matrix& gradient) {
  gradients_.find(name)->second += gradient;
}

bool DeviceParameters::IsSummedAsItLies(const Parameter& parameter, const VectorGroup& of) const {
  return !parameter.is_matrix && !IsOnDiagonal(role_, parameter) &&
         parameter.column_axis == of.axis && role_.GridOf(parameter.part) == of.grid;
}

Matrix DeviceParameters::VectorGradients(const VectorGroup& of) const {
  Matrix all(1, 0);
  for (const Parameter& parameter : parameters_) {
    if (IsSummedAsItLies(parameter, of)) Append(gradient(parameter.name), all);
  }
  return all;
}

void DeviceParameters::SetVectorGradients(const VectorGroup& of, const Matrix& sum) {
  CHECK(sum.size() == VectorGradients(of).size()) << sum.size() << " gradients of vectors";
  const float* next = sum.data();
  for (const Parameter& parameter : parameters_) {
    if (!IsSummedAsItLies(parameter, of)) continue;
    Matrix& one = gradients_[parameter.name];
    one = Eigen::Map<const Matrix>(next, one.rows(), one.cols());
    next += one.size();
  }
}

void DeviceParameters::SetMatrixGradient(const MatrixUse& use, const Matrix& gradient) {
  SetGradient(use.key, gradient);
}

void DeviceParameters::SetVectorsDone() {
  for (const Parameter& parameter : parameters_) {
    if (parameter.is_matrix) continue;
    const Tensors& sums = IsOnDiagonal(role_, parameter) ? reduced_ : gradients_;
    SetGradient(parameter.name, Matrix(sums.find(parameter.name)->second));
  }
  gathered_.clear();
  spread_.clear();
}

void DeviceParameters::SetGradient(const std::string& name, const Matrix& gradient) {
  last_gradients_[name] = gradient;
  gradients_[name].setZero();
}

void DeviceParameters::ApplyStep() {
  ++steps_;
  const Optimizer& optimizer = role_.settings.optimizer;
  for (const auto& [name, gradient] : last_gradients_) {
    if (optimizer.is_adam) {
      DescendByAdam(optimizer, steps_, gradient,
                    AdamTensors<float>{stored_[name], stored_[FirstMoment(name)],
                                       stored_[SecondMoment(name)]});
    } else {
      Descend(optimizer, gradient, stored_[name]);
    }
  }
}

void DeviceParameters::DropStep() {
  for (const Parameter& parameter : parameters_) {
    const Matrix& of = stored(parameter.name);
    Matrix& sums = gradients_[parameter.name];
    sums = IsOnDiagonal(role_, parameter)
               ? Matrix::Zero(1, parameter.columns / diagonal_grid()[*parameter.column_axis])
               : Matrix::Zero(of.rows(), of.cols());
  }
  last_gradients_.clear();
  gathered_.clear();
  spread_.clear();
  reduced_.clear();
}

void DeviceParameters::SetState(Tensors stored, int64_t steps) {
  stored_ = std::move(stored);
  steps_ = steps;
  DropStep();
}

}  // namespace crossmesh::grid_training
