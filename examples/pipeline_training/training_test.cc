#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "examples/pipeline_training/model.h"
#include "examples/pipeline_training/sharded_linear.h"
#include "examples/pipeline_training/training_stage.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace crossmesh::training {
namespace {

constexpr float kRounding = 1e-5F;

// By devices: columns, rows, or all of it everywhere.
Shards SplitColumns(const Matrix& whole, int devices) {
  Shards shards;
  const auto columns = whole.cols() / devices;
  for (int d = 0; d < devices; ++d) shards.push_back(whole.middleCols(d * columns, columns));
  return shards;
}
Shards SplitRows(const Matrix& whole, int devices) {
  Shards shards;
  Eigen::Index row = 0;
  for (int d = 0; d < devices; ++d) {
    const Eigen::Index rows = whole.rows() / devices + (d < whole.rows() % devices ? 1 : 0);
    shards.push_back(whole.middleRows(row, rows));
    row += rows;
  }
  return shards;
}

void ExpectNear(const Shards& found, const Shards& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t d = 0; d < found.size(); ++d) {
    ASSERT_EQ(found[d].rows(), expected[d].rows());
    ASSERT_EQ(found[d].cols(), expected[d].cols());
    EXPECT_LT((found[d] - expected[d]).cwiseAbs().maxCoeff(), kRounding);
  }
}

TEST(ShardedLinear, IsTheWholeProductHoweverItIsShared) {
  std::srand(7);  // of Eigen's random matrices
  for (const int devices : {1, 2, 4}) {
    const Matrix weights = Matrix::Random(8, 12);
    const Matrix input = Matrix::Random(5, 8);
    const Matrix output_gradient = Matrix::Random(5, 12);
    const Matrix output = input * weights;
    const Matrix input_gradient = output_gradient * weights.transpose();
    const Matrix weight_gradient = input.transpose() * output_gradient;

    ShardedLinear columns(weights, Parallelism::kColumns, devices);
    ExpectNear(columns.Forward(Everywhere(input, devices)), SplitColumns(output, devices));
    ExpectNear(columns.InputGradient(SplitColumns(output_gradient, devices)),
               Everywhere(input_gradient, devices));
    columns.AddWeightGradient(Everywhere(input, devices), SplitColumns(output_gradient, devices));
    ExpectNear(columns.gradient(), SplitColumns(weight_gradient, devices));

    ShardedLinear rows(weights, Parallelism::kRows, devices);
    ExpectNear(rows.Forward(SplitColumns(input, devices)), Everywhere(output, devices));
    ExpectNear(rows.InputGradient(Everywhere(output_gradient, devices)),
               SplitColumns(input_gradient, devices));
    rows.AddWeightGradient(SplitColumns(input, devices), Everywhere(output_gradient, devices));
    Shards rows_gradient;
    for (int d = 0; d < devices; ++d) {
      rows_gradient.push_back(weight_gradient.middleRows(d * (8 / devices), 8 / devices));
    }
    ExpectNear(rows.gradient(), rows_gradient);

    ShardedLinear batch(weights, Parallelism::kBatch, devices);
    ExpectNear(batch.Forward(SplitRows(input, devices)), SplitRows(output, devices));
    ExpectNear(batch.InputGradient(SplitRows(output_gradient, devices)),
               SplitRows(input_gradient, devices));
    batch.AddWeightGradient(SplitRows(input, devices), SplitRows(output_gradient, devices));
    ExpectNear(batch.gradient(), Everywhere(weight_gradient, devices));
  }
}

// What one stage gives, as the next one needs it.
Shards Convert(int from, int to, const Shards& shards, bool forward) {
  const auto& given = TrainingStage::ShapeOf(from);
  const auto& wanted = TrainingStage::ShapeOf(to);
  Matrix whole = shards.front();
  const bool is_columns = forward ? given.parallelism == Parallelism::kColumns
                                  : given.parallelism == Parallelism::kRows;
  const bool is_rows = given.parallelism == Parallelism::kBatch;
  for (size_t d = 1; d < shards.size() && (is_columns || is_rows); ++d) {
    Matrix joined(whole.rows() + (is_rows ? shards[d].rows() : 0),
                  whole.cols() + (is_columns ? shards[d].cols() : 0));
    if (is_rows) {
      joined << whole, shards[d];
    } else {
      joined.leftCols(whole.cols()) = whole;
      joined.rightCols(shards[d].cols()) = shards[d];
    }
    whole = joined;
  }
  if (wanted.parallelism == Parallelism::kBatch) return SplitRows(whole, wanted.devices);
  const bool wants_columns = forward ? wanted.parallelism == Parallelism::kRows
                                     : wanted.parallelism == Parallelism::kColumns;
  return wants_columns ? SplitColumns(whole, wanted.devices) : Everywhere(whole, wanted.devices);
}

std::vector<double> TrainInStages(int steps) {
  std::vector<std::unique_ptr<TrainingStage>> stages;
  for (int s = 0; s < Model::kStages; ++s) stages.push_back(std::make_unique<TrainingStage>(s));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    for (int m = 0; m < static_cast<int>(std::size(Model::kMicrobatches)); ++m) {
      const Matrix x = Model::Inputs(Model::FirstSample(m), Model::kMicrobatches[m]);
      const Shards h0 = stages[0]->Forward(m, {Everywhere(x, 1)});
      const Shards h1 = stages[1]->Forward(m, {Convert(0, 1, h0, true)});
      const Shards h2 = stages[2]->Forward(m, {Convert(1, 2, h1, true)});
      stages[3]->Forward(m, {Convert(2, 3, h2, true), Convert(0, 3, h0, true)});
      const std::vector<Shards> d3 = stages[3]->InputGradient(m, {});
      const std::vector<Shards> d2 = stages[2]->InputGradient(m, Convert(3, 2, d3[0], false));
      const std::vector<Shards> d1 = stages[1]->InputGradient(m, Convert(2, 1, d2[0], false));
      Shards sum = Convert(1, 0, d1[0], false);
      sum[0] += Convert(3, 0, d3[1], false)[0];
      stages[0]->InputGradient(m, sum);
      for (const auto& stage : stages) stage->WeightGradient(m);
    }
    for (const auto& stage : stages) {
      const double loss = stage->ApplyGradients();
      if (stage->shape().last) losses.push_back(loss);
    }
  }
  return losses;
}

TEST(Training, StagesOfSeveralDevicesTrainAsOneProcess) {
  const std::vector<double> alone = TrainAlone(20);
  const std::vector<double> stages = TrainInStages(20);
  for (int step = 0; step < 20; ++step) {
    EXPECT_NEAR(stages[step], alone[step], 1e-5 * alone[step]) << "step " << step;
  }
  EXPECT_LT(alone.back(), 0.2 * alone.front());
}

// Weights that were not changed give the same loss again.
TEST(Training, DroppedGradientsLeaveNothing) {
  TrainingStage stage(0);
  const Matrix x = Model::Inputs(0, 8);
  const Shards before = stage.Forward(0, {Everywhere(x, 1)});
  stage.InputGradient(0, before);
  stage.WeightGradient(0);
  stage.DropGradients();
  stage.ApplyGradients();
  EXPECT_EQ(stage.Forward(0, {Everywhere(x, 1)})[0], before[0]);
}

TEST(Training, ItsPipelineIsPlannedAndProven) {
  v1::PipelineSpec spec;
  const auto read = google::protobuf::util::JsonStringToMessage(
      ReadTextFile(SourcePath("examples/pipeline_training/pipeline.json")), &spec);
  ASSERT_TRUE(read.ok()) << read.ToString();
  ASSERT_OK_AND_ASSIGN(PipelineDescription description,
                       FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(4)));
  v1::PipelineChoice choice;
  choice.set_schedule("eager_1f1b");
  choice.set_delay_weight_gradients(true);
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanPipeline(std::move(description), choice));
  EXPECT_EQ(planned->description.samples,
            std::vector<int64_t>(std::begin(Model::kMicrobatches), std::end(Model::kMicrobatches)));
}

}  // namespace
}  // namespace crossmesh::training
