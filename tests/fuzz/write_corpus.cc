// Writes what the fuzz targets start from: a few small inputs for each, made by the encoders.
//
//   write_fuzz_corpus tests/fuzz/corpus

#include "client/safetensors/writer.h"
#include "common/base/check.h"
#include "common/memory_protocol/memory_protocol.h"
#include "common/memory_protocol/piece_list.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "common/plan/broadcast_groups.h"
#include "common/plan/testing/random_tensors.h"
#include "common/reshard/reshard_tensors.h"
#include "common/testing/paths.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/tensor_codec.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/worker_programs.h"
#include "crossmesh/v1/reshard.pb.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "tests/fuzz/corpus_writer.h"
#include "tests/fuzz/etcd_corpus.h"
#include "worker/executor/wire_message.h"
#include "worker/gpu/protocol/gpu_message.h"
#include "worker/transport/socket/socket_address.h"
#include "worker/transport/socket/socket_frame.h"
#include "worker/transport/striped/striped_address.h"
#include "worker/transport/ucx/ucx_address.h"

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

namespace crossmesh {
namespace {

Manifest SmallManifest() {
  absl::StatusOr<Manifest> manifest = Manifest::Create(
      {{.name = "h.0.w", .type = DataType::kF32, .shape = *Shape::Create(std::array{4L, 6L})},
       {.name = "h.1.w", .type = DataType::kBF16, .shape = *Shape::Create(std::array{8L})},
       {.name = "scale", .type = DataType::kF8E4M3, .shape = Shape()}});
  CHECK_OK(manifest);
  return *std::move(manifest);
}

void WriteTextForms(const CorpusWriter& corpus) {
  const std::vector<std::string> texts = {
      "data=2,model=3 on a.0-2,b.0-2",
      "stage=1,expert=3",
      "a.0-3,node-1.lan.7",
      "[2:4, 0:5]",
      "[data*model, -] nested_chunk",
      "{[0:3, 0:4] [6:9, 0:4]; [3:6, 0:4]}",
      "[::1]:7400",
      "unix:/run/worker.sock",
      std::string("h.11.up.3\n# a comment\nh.{l}.up.{e} [tensor, -] on expert={e}/4,stage={l}\n") +
          "*  [data, ...]\n",
      "norm.weight\nup.{l} [tensor, -] on stage=1 as F8_E4M3\n* [...] chunk as F32\n",
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    corpus.Write("text_form", absl::StrCat("form_", i), texts[i]);
  }
}

void WriteDescriptionFiles(const CorpusWriter& corpus) {
  corpus.Write("description_file", "manifest",
               R"({"model": "m", "source": "s", "total_bytes": 54,)"
               R"( "tensors": [{"name": "a", "shape": [2, 6], "dtype": "F32"},)"
               R"( {"name": "b", "shape": [3], "dtype": "BF16"}]})");
  corpus.Write("description_file", "topology",
               R"({"hosts": [{"name": "a", "nics": [{"name": "eth0",)"
               R"( "out_bytes_per_second": 125, "in_bytes_per_second": 125,)"
               R"( "out_latency_ns": 7, "in_latency_ns": 8}], "local_bytes_per_second": 9}],)"
               R"( "racks": [{"name": "r1", "hosts": ["a"], "up_bytes_per_second": 50,)"
               R"( "down_bytes_per_second": 50}], "assumed_bytes_per_second": 9})");
}

void WriteSafetensorsFile(const CorpusWriter& corpus) {
  const Manifest manifest = SmallManifest();
  const std::vector<std::byte> zeros(manifest.bytes());
  std::vector<SafetensorsEntry> entries;
  for (const TensorSpec& tensor : manifest.tensors()) {
    entries.push_back({.spec = tensor, .bytes = std::span(zeros).first(tensor.bytes())});
  }
  CHECK_OK(WriteSafetensors(corpus.PathOf("safetensors_header", "three_tensors"), entries));
  const std::string header = R"({"__metadata__": {"format": "pt"}})";
  corpus.Write(
      "safetensors_header", "metadata",
      absl::StrCat(std::string(1, static_cast<char>(header.size())), std::string(7, '\0'), header));
}

void WriteMemoryDatagrams(const CorpusWriter& corpus) {
  using Op = MemoryRequest::Op;
  const auto write = [&corpus](const std::string& name, const auto& datagram) {
    corpus.Write("memory_datagram", name, Encode(datagram));
  };
  write("create", MemoryRequest{Op::kCreate, "trainer", "a.0", 4096});
  write("open", MemoryRequest{Op::kOpen, "trainer", "a.0"});
  write("list", MemoryRequest{});
  write("lend", MemoryRequest{Op::kLend, "pool", "a.1", 4096});
  write("lend_by_handle", MemoryRequest{.op = Op::kLend,
                                        .storage = "pool",
                                        .device = "a.1",
                                        .bytes = 4096,
                                        .generation = 1,
                                        .ipc_handle = std::string(64, 'h')});
  write("pieces_of_generations",
        PieceList{.allocations = {"pool"}, .generations = {2}, .pieces = {{0, 64, 0, 512}}});
  write("pieces", PieceList{.allocations = {"pool"}, .pieces = {{0, 64, 0, 512}, {64, 8, 0, 0}}});
  write("delete", MemoryRequest{Op::kDelete, "trainer", "a.0"});
  write("trim", MemoryRequest{Op::kTrim, "trainer", "a.0"});
  write("storages", MemoryReply{.storages = {{"trainer", "a.0", 4096, 7, false},
                                             {"serving", "a.1", 64, 1, true, "", 64}}});
  write("refusal", MemoryReply{.status = absl::NotFoundError("storage 'x' of device a.0")});
}

std::shared_ptr<const TensorTable> TableOf(std::vector<TensorSpec> tensors,
                                           const ReshardLayout& source,
                                           const ReshardLayout& destination) {
  const Manifest manifest = Manifest::Create(std::move(tensors)).value();
  return std::make_shared<const TensorTable>(
      BuildReshardTensors(manifest, source, destination, {}).value());
}

// One tensor gets scales, one is converted without.
std::shared_ptr<const TensorTable> ConvertedTensors() {
  return TableOf(
      {{.name = "w", .type = DataType::kBF16, .shape = *Shape::Create(std::array{256L, 128L})},
       {.name = "norm", .type = DataType::kF32, .shape = *Shape::Create(std::array{8L})}},
      {*ParseMesh("x=2 on a.0-1"), *LayoutRules::Parse("* [x, ...]")},
      {*ParseMesh("y=2 on b.0-1"), *LayoutRules::Parse("w [y, -] as F8_E4M3\n* [...] as F16")});
}

// All of it is one broadcast group.
std::shared_ptr<const TensorTable> OneGroup() {
  const LayoutRules whole = *LayoutRules::Parse("* [...]");
  return TableOf({{.name = "w", .type = DataType::kF32, .shape = *Shape::Create(std::array{64L})}},
                 {*ParseMesh("x=1 on a.0"), whole}, {*ParseMesh("y=3 on b.0-2"), whole});
}

// A random part of a random plan for the tensors.
void WritePart(const CorpusWriter& corpus, const std::string& name, RandomSource& random,
               const std::shared_ptr<const TensorTable>& tensors) {
  absl::StatusOr<Slicing> slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec =
      RandomPlan(random, tensors, std::make_shared<const Slicing>(*std::move(slicing)));
  spec.broadcast_groups = FindBroadcastGroups(spec.relays, spec.hops, tensors->devices().size());
  const Plan plan = Plan::Create(std::move(spec)).value();
  std::vector<std::vector<DeviceId>> devices(2);
  for (const DeviceId& device : tensors->devices()) devices[random.Below(2)].push_back(device);
  corpus.Write("worker_part", name, ToProto(CutParts(plan, devices).value().front()));
}

void WriteParts(const CorpusWriter& corpus) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RandomSource random(seed);
    WritePart(corpus, absl::StrCat("random_", seed), random,
              std::make_shared<const TensorTable>(
                  RandomTensorTable(random, {.slots_max = 6, .tensors_max = 3})));
  }
  RandomSource random(9);
  WritePart(corpus, "converted", random, ConvertedTensors());
  WritePart(corpus, "broadcast", random, OneGroup());
}

CommunicatorKey SmallCommunicator() {
  return {.ranks = {{"GPU-a", 7}, {"GPU-b", 1}}, .purpose = "relay", .epoch = 2};
}

void WriteCommunicators(const CorpusWriter& corpus) {
  corpus.Write("communicator", "key", ToProto(SmallCommunicator()));
  const PreflightReport report = {.rank = {"GPU-a", 7},
                                  .nccl_version = 23007,
                                  .nccl_library = "NCCL 2.30.7",
                                  .driver_version = 13000,
                                  .environment = {{"NCCL_CUMEM_ENABLE", "1"}},
                                  .free_bytes = 1 << 30};
  corpus.Write("communicator", "preflight", ToProto(report));
}

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

void WriteStart(const CorpusWriter& corpus) {
  auto start = FromText<v1::ExecuteRequest::Start>(R"(
      operation: 1 operation_id: "op-1" epoch: 1 attempt: 1 token: "0123456789abcdef"
      part_digest: "00000000000000000000000000000000"
      source_storage: "old" destination_storage: "new" checksums: true
      peers { worker: "w1" data_address: "address" devices: 3 }
      deadline { seconds: 60 } stall_limit { nanos: 5 }
      communicators { devices: 3 devices: 0 })");
  *start.mutable_communicators(0)->mutable_key() = ToProto(SmallCommunicator());
  corpus.Write("start_request", "start", start);
}

void WriteGpuMessages(const CorpusWriter& corpus) {
  const CommunicatorKey key = {
      .ranks = {{.gpu = "GPU-a", .incarnation = 1}, {.gpu = "GPU-b", .incarnation = 2}},
      .purpose = "relay",
      .epoch = 3};
  const TaskKey task = {.operation = 1, .epoch = 2, .plan = 3, .instance = 4};
  const auto write = [&corpus](const std::string& name, const auto& message) {
    corpus.Write("gpu_message", name, message);
  };
  auto request = FromText<v1::GpuRequest>("id: 1 create_arena { arena: 1 size_bytes: 4096 }");
  write("create_arena", request);
  request = FromText<v1::GpuRequest>(
      R"(id: 1 import_arena { arena: 1 size_bytes: 4096 ipc_handle: "handle" })");
  write("import_arena", request);
  *request.mutable_create_communicator() =
      FromText<v1::CreateCommunicatorRequest>(R"(ticket: 1 id: "id" timeout { seconds: 5 })");
  *request.mutable_create_communicator()->mutable_key() = ToProto(key);
  write("create_communicator", request);
  *request.mutable_stop_communicator()->mutable_key() = ToProto(key);
  request.mutable_stop_communicator()->set_reason("enough");
  write("stop_communicator", request);
  v1::GpuRequest::RunTask& run = *request.mutable_run_task();
  run = FromText<v1::GpuRequest::RunTask>(
      "devices: 3 devices: 1 deadline { seconds: 60 } stall_limit { seconds: 5 }");
  *run.mutable_key() = ToProto(task);
  *run.mutable_sources() = ToProto(std::vector<TilePlace>{{ArenaId(1), 64}, {}});
  *run.mutable_destinations() = ToProto(std::vector<TilePlace>{{}, {ArenaId(2), 0}});
  *run.mutable_communicator() = ToProto(key);
  write("run_task", request);
  v1::GpuRequest::CopyTiles& copy = *request.mutable_copy_tiles();
  copy = FromText<v1::GpuRequest::CopyTiles>(
      "direction: DIRECTION_LOAD arena: 1 ranges { size_bytes: 64 } "
      "ranges { offset_bytes: 128 size_bytes: 4096 }");
  *copy.mutable_key() = ToProto(task);
  write("copy_tiles", request);
  v1::GpuNotice notice;
  *notice.mutable_hello()->mutable_preflight() =
      ToProto(PreflightReport{.rank = key.ranks[0], .environment = {{"NCCL_A", "1"}}});
  write("hello", notice);
  notice.mutable_answer()->set_request(4);
  *notice.mutable_answer()->mutable_report() =
      ReportToProto({.key = task,
                     .devices = {{.device = 1, .bytes = 10}},
                     .lost_peers = {"GPU-b"},
                     .links = {{.peer = "GPU-b", .sent_bytes = 7}}});
  write("report", notice);
  *notice.mutable_last_words()->mutable_cause() = ToProto(absl::InternalError("hung"));
  write("last_words", notice);
}

void WriteSpec(const CorpusWriter& corpus) {
  auto spec = FromText<v1::ReshardSpec>(R"(
      source {
        inline_mesh { axes: "x=2" devices: "a.0-1" }
        rules { pattern: "h.{l}.*" layout: "[x, ...]" } rules { pattern: "*" layout: "[...]" }
      }
      destination {
        inline_mesh { axes: "replica=2,y=2" devices: "b.0-3" }
        rules { pattern: "h.{l}.*" layout: "[..., y] chunk" dtype: "F16" }
        rules { pattern: "*" layout: "[...]" }
      }
      replica_axes: "replica" strategy: "relay")");
  *spec.mutable_inline_manifest() = ToProto(SmallManifest());
  *spec.mutable_topology() = ToProto(Topology());
  std::string text;
  CHECK(google::protobuf::util::MessageToJsonString(spec, &text).ok());
  corpus.Write("reshard_spec", "inline", text);
}

// The training example, its programs by stage and for one worker that waits, and a fused pair.
void WritePipelines(const CorpusWriter& corpus) {
  const std::string text = ReadTextFile(SourcePath("examples/pipeline_training/pipeline.json"));
  corpus.Write("pipeline_spec", "training", text);
  v1::PipelineSpec spec;
  CHECK(google::protobuf::util::JsonStringToMessage(text, &spec).ok());
  const std::vector<std::shared_ptr<const Mesh>> inline_meshes(spec.ranks_size());
  for (const bool blocking : {false, true}) {
    v1::PipelineChoice choice;
    choice.set_schedule("1f1b");
    if (blocking) choice.set_transfer_model("blocking");
    const auto planned = PlanPipeline(FromProto(spec, inline_meshes).value(), choice).value();
    std::vector<std::vector<DeviceId>> devices(blocking ? 1 : spec.ranks_size());
    for (int rank = 0; rank < spec.ranks_size(); ++rank) {
      const std::vector<DeviceId>& of_rank = planned->description.ranks[rank].mesh->devices();
      std::vector<DeviceId>& of_worker = devices[blocking ? 0 : rank];
      of_worker.insert(of_worker.end(), of_rank.begin(), of_rank.end());
    }
    const std::vector<PlannedProgram> programs = MakeWorkerPrograms(*planned, devices).value();
    for (size_t worker = 0; worker < programs.size(); ++worker) {
      corpus.Write("pipeline_program", blocking ? "blocking" : absl::StrCat("stage_", worker),
                   programs[worker].message);
    }
  }
  corpus.Write("pipeline_program", "pair", FromText<v1::PipelineProgram>(R"(
      ranks { actions: "0F1& 0B0" } stages {} pairs {} microbatches { count: 2 samples: 1 })"));
}

template <typename T>
std::string BytesOf(const T& object) {
  return {reinterpret_cast<const char*>(&object), sizeof(object)};
}

// The first byte: bit 0 is shared memory, bit 1 that these are answers, bit 2 that pages may be
// given; all bits say what is done with the messages that come in.
void WriteSocketStreams(const CorpusWriter& corpus) {
  const auto frame = [](FrameKind kind, uint64_t id, uint32_t pieces = 0, uint64_t region = 0) {
    return BytesOf(FrameHeader{.kind = kind, .pieces = pieces, .id = id, .region = region});
  };
  const auto announce = [&](uint64_t id, uint64_t bytes, uint32_t pieces = 0) {
    return frame(FrameKind::kAnnounce, id, pieces, pieces > 0 ? 1 : 0) +
           BytesOf(MessageHeader{.sequence = id, .payload_bytes = bytes});
  };
  corpus.Write("socket_stream", "inline",
               "\xfc" + announce(1, 3) + "abc" + announce(2, 0) + announce(3, 1) + "d");
  corpus.Write("socket_stream", "payload",
               "\xfc" + announce(1, 5000) + frame(FrameKind::kPayload, 1) + std::string(5000, 'x') +
                   announce(2, 3) + "abc");
  corpus.Write("socket_stream", "pieces",
               "\xfd" + announce(1, 5000, 2) + BytesOf(RemotePiece{4096, 2000}) +
                   BytesOf(RemotePiece{60000, 3000}));
  corpus.Write("socket_stream", "regions",
               "\xc1" + frame(FrameKind::kRegion, 0, 0, 2) +
                   BytesOf(RegionFile{.bytes = 4096, .inode = 5, .fd = 6}) + announce(1, 5000, 1) +
                   BytesOf(RemotePiece{1, 5000}) + frame(FrameKind::kForget, 0, 0, 1) +
                   frame(FrameKind::kForget, 0, 0, 2));
  corpus.Write("socket_stream", "takes",
               "\x02" + frame(FrameKind::kTake, 1) + frame(FrameKind::kDone, 0) +
                   frame(FrameKind::kTake, 2));
  corpus.Write("socket_stream", "pages",
               "\x06" + frame(FrameKind::kTake, 1, FrameHeader::kSayDone) +
                   frame(FrameKind::kTake, 0) + frame(FrameKind::kDone, 1) +
                   frame(FrameKind::kTake, 2, FrameHeader::kSayDone));
  corpus.Write("socket_stream", "pages_read",
               "\xfc" + announce(1, 5000) + frame(FrameKind::kPayload, 1, FrameHeader::kSayDone) +
                   std::string(5000, 'x'));
  corpus.Write("socket_stream", "dones",
               "\x03" + frame(FrameKind::kDone, 2) + frame(FrameKind::kDone, 0));
}

void WriteMessages(const CorpusWriter& corpus) {
  corpus.Write(
      "ucx_address", "address",
      UcxAddress{.shared_memory = true, .boot_id = "0123456789abcdef", .worker_address = "worker"}
          .Encode());
  corpus.Write("socket_address", "address",
               SocketAddress{.shared_memory = true,
                             .nonce_file = {.pid = 7, .fd = 8},
                             .nonce = {'n', 'o', 'n', 'c', 'e'},
                             .endpoint = {.ip = {'i', 'p'}, .port = 65001}}
                   .Encode());
  corpus.Write("striped_address", "address",
               StripedAddress{.nics = {"first", "second"}}.Encode().value());
  corpus.Write("striped_address", "without_frame", std::string("\2\1\0a\2\0bc", 8));
  std::array<std::byte, kFailureBytesMax> bytes;
  const size_t size = EncodeFailure(absl::DataLossError("relay 3 at b.0: caf\xc3\xa9"), bytes);
  corpus.Write("failure_message", "data_loss",
               std::string(reinterpret_cast<const char*>(bytes.data()), size));
  // A plan, then what is done to one message after the other: nothing; a drop; a header changed.
  corpus.Write("peer_message", "nothing", std::string(1, '\3'));
  corpus.Write("peer_message", "a_drop", std::string("\5\0\0\1", 4));
  corpus.Write("peer_message", "a_kind_changed", std::string("\7\0\4\6\4\0\4\5\2", 9));
  corpus.Write("peer_message", "a_forged_repeat", std::string("\2\2\7\5\1\0\0\1\3\3", 10));
}

void WriteAll(const CorpusWriter& corpus) {
  WriteEtcdWatches(corpus);
  WriteTextForms(corpus);
  WriteDescriptionFiles(corpus);
  WriteSafetensorsFile(corpus);
  WriteMemoryDatagrams(corpus);
  WriteParts(corpus);
  WriteCommunicators(corpus);
  WriteGpuMessages(corpus);
  WriteStart(corpus);
  WriteSpec(corpus);
  WritePipelines(corpus);
  WriteSocketStreams(corpus);
  WriteMessages(corpus);
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_fuzz_corpus FOLDER\n");
    return 2;
  }
  crossmesh::WriteAll(crossmesh::CorpusWriter(argv[1]));
  return 0;
}
