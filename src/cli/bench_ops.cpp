#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lamina/base/files.h"
#include "lamina/base/json.h"
#include "lamina/cli/bandwidth.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/op_bench.h"
#include "lamina/cli/product_peak.h"
#include "lamina/cli/usage.h"
#include "lamina/ops/kernel_dispatch.h"

namespace lamina::cli {
namespace {

struct OpsArguments {
  DeviceChoice device;
  std::string dtype;
  std::string filter;
  std::string peer;
  double seconds = 0.2;
  bool quick = false;
  bool kernels = false;
  bool json = false;
};

/// Measured limits of the device.
struct OpLimits {
  double copy = 0;     ///< bytes/s
  double product = 0;  ///< FLOP/s
};

struct PeerTime {
  double ms = 0;
  std::string by;
};
/// Keys are "NAME WAY".
using PeerTimes = std::map<std::string, PeerTime>;

struct OpRow {
  std::string name;
  OpWay way = OpWay::forward;
  std::string kernel;  ///< kernel to force; "" for the automatic choice
  Work work;
  double seconds = 0;
  double memory_floor = 0;   ///< lower bound in seconds from memory bandwidth
  double product_floor = 0;  ///< lower bound in seconds from FLOP/s
  std::optional<PeerTime> peer;

  double floor() const { return std::max(memory_floor, product_floor); }
  double share() const { return floor() / seconds; }
  const char* limit() const { return memory_floor >= product_floor ? "memory" : "products"; }
  double ratio() const { return peer->ms / (seconds * 1e3); }
};

std::string key_of(const std::string& name, OpWay way) { return str(name, " ", name_of(way)); }

/// Reads a file of rows {name, way, ms, by}. Returns the fastest time for each name and way.
PeerTimes read_peer(const std::string& path) {
  LAMINA_CHECK(path_exists(path), "--peer ", path, ": does not exist; make it with tools/peers/torch_ops.py");
  const auto json = read_json_file<nlohmann::json>(path);
  PeerTimes times;
  size_t number = 0;
  try {
    for (const auto& row : json.at("rows")) {
      ++number;
      const std::string key = row.at("name").get<std::string>() + " " + row.at("way").get<std::string>();
      const PeerTime time{row.at("ms").get<double>(), row.at("by").get<std::string>()};
      const auto [at, added] = times.try_emplace(key, time);
      if (!added && time.ms < at->second.ms) at->second = time;
    }
  } catch (const nlohmann::json::exception&) {
    throw Error(
        str("--peer ", path, ": row ", number,
            ": expected {\"rows\": [{\"name\", \"way\", \"ms\", \"by\"}]}; make it with tools/peers/torch_ops.py"));
  }
  return times;
}

std::vector<OpBench> chosen(const OpsArguments& arguments, const OpBenchSetting& setting) {
  std::vector<OpBench> benches = op_benches(setting);
  std::string names;
  for (const OpBench& bench : benches) names += "\n  " + bench.name;
  for (OpBench& bench : benches) {
    std::erase_if(bench.ways,
                  [&](OpWay way) { return key_of(bench.name, way).find(arguments.filter) == std::string::npos; });
  }
  std::erase_if(benches, [](const OpBench& bench) { return bench.ways.empty(); });
  LAMINA_CHECK(!benches.empty(), "--filter '", arguments.filter, "': in no operator's name; they are, forward and ",
               "backward:", names);
  return benches;
}

OpRow measure(const OpBench& bench, OpWay way, const OpCall& call, const OpBenchSetting& setting,
              const OpLimits& limits, double seconds) {
  OpRow row{.name = bench.name, .way = way};
  row.work = work_of(bench, way, call, setting);
  row.seconds = median_seconds(call, way, setting, seconds);
  row.memory_floor = static_cast<double>(row.work.bytes) / limits.copy;
  row.product_floor = static_cast<double>(row.work.flops) / limits.product;
  return row;
}

void print(const OpRow& row) {
  const std::string name = row.kernel.empty() ? row.name : "  by " + row.kernel;
  std::printf("%-55s %-16s %10.4f %10.4f %6.2f  %-8s", name.c_str(), std::string(name_of(row.way)).c_str(),
              row.seconds * 1e3, row.floor() * 1e3, row.share(), row.limit());
  if (row.peer) std::printf(" %10.4f %6.2f  %s", row.peer->ms, row.ratio(), row.peer->by.c_str());
  std::printf("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const OpRow& row) {
  nlohmann::ordered_json json{
      {"name", row.name},     {"way", name_of(row.way)}, {"ms", row.seconds * 1e3}, {"floor_ms", row.floor() * 1e3},
      {"share", row.share()}, {"limit", row.limit()},    {"flops", row.work.flops}, {"bytes", row.work.bytes}};
  if (!row.kernel.empty()) json["kernel"] = row.kernel;
  if (row.peer) {
    json["peer"] = row.peer->by;
    json["peer_ms"] = row.peer->ms;
    json["ratio"] = row.ratio();
  }
  return json;
}

void check_meets(const PeerTimes& peers, const std::vector<OpBench>& benches, const std::string& path) {
  for (const OpBench& bench : benches) {
    for (const OpWay way : bench.ways) {
      if (peers.contains(key_of(bench.name, way))) return;
    }
  }
  throw Error(str("--peer ", path,
                  ": has none of the operators that are measured; names and sizes must agree, such as '",
                  benches[0].name, "'"));
}

/// Times each kernel that supports the call.
void run_kernels(const OpBench& bench, OpWay way, const OpCall& call, const OpBenchSetting& setting,
                 const OpLimits& limits, double seconds, const std::function<void(const OpRow&)>& show) {
  const std::string& op = way == OpWay::backward ? bench.backward_choice : bench.forward_choice;
  for (const std::string& kernel : ops::kernels_of(op)) {
    const ops::ForcedKernel forced(setting.device, op, kernel);
    try {
      OpRow row = measure(bench, way, call, setting, limits, seconds);
      row.kernel = kernel;
      show(row);
    } catch (const ops::UnsupportedKernel&) {
      continue;
    }
  }
}

/// Runs the selected benchmarks, and calls `show` with each row. Returns the failures, so that a failing operator does
/// not stop the others.
std::vector<std::string> run_benches(const std::vector<OpBench>& benches, const OpBenchSetting& setting,
                                     const OpLimits& limits, const PeerTimes& peers, const OpsArguments& arguments,
                                     const std::function<void(const OpRow&)>& show) {
  std::vector<std::string> failed;
  for (const OpBench& bench : benches) {
    try {
      const OpCall call = bench.make(setting);
      for (const OpWay way : bench.ways) {
        OpRow row = measure(bench, way, call, setting, limits, arguments.seconds);
        if (const auto peer = peers.find(key_of(bench.name, way)); peer != peers.end()) row.peer = peer->second;
        show(row);
        if (arguments.kernels) run_kernels(bench, way, call, setting, limits, arguments.seconds, show);
      }
    } catch (const Error& error) {
      failed.push_back(str(bench.name, ": ", error.what()));
    }
    setting.device.allocator().trim();
  }
  return failed;
}

OpLimits measure_limits(const OpBenchSetting& setting) {
  return {copy_bandwidth(setting.device, setting.pick(int64_t{4} << 30, int64_t{512} << 20, 1 << 20)),
          product_peak(setting.device, setting.dtype, setting.pick(8192, 2048, 128))};
}

OpBenchSetting setting_of(const OpsArguments& arguments) {
  using Size = OpBenchSetting::Size;
  const Device device = arguments.device.open();
  const bool gpu = device.kind() == DeviceKind::cuda;
  const std::string dtype = arguments.dtype.empty() ? (gpu ? "bf16" : "f32") : arguments.dtype;
  const std::optional<DType> type = dtype_from_name(dtype);
  LAMINA_CHECK(type == DType::f32 || type == DType::bf16 || type == DType::f16, "--dtype ", dtype,
               ": expected f32, bf16 or f16");
  return {device, *type, arguments.quick ? Size::tiny : gpu ? Size::gpu : Size::cpu};
}

void run(const OpsArguments& arguments) {
  const PeerTimes peers = arguments.peer.empty() ? PeerTimes{} : read_peer(arguments.peer);
  const OpBenchSetting setting = setting_of(arguments);
  const std::vector<OpBench> benches = chosen(arguments, setting);
  if (!arguments.peer.empty()) check_meets(peers, benches, arguments.peer);
  const OpLimits limits = measure_limits(setting);
  const std::string dtype = str(setting.dtype);
  nlohmann::ordered_json json{{"device", describe(setting.device)},
                              {"dtype", dtype},
                              {"copy_bytes_per_second", limits.copy},
                              {"product_flops_per_second", limits.product},
                              {"rows", nlohmann::ordered_json::array()}};
  if (!arguments.json) {
    std::printf("%s, %s: copying %.1f GB/s, products %.1f GFLOP/s\n", describe(setting.device).c_str(), dtype.c_str(),
                limits.copy / 1e9, limits.product / 1e9);
    std::printf("%-55s %-16s %10s %10s %6s  %-8s%s\n", "operator", "", "ms", "floor ms", "share", "limit",
                peers.empty() ? "" : "    peer ms  ratio  by");
  }
  const auto failed = run_benches(benches, setting, limits, peers, arguments, [&](const OpRow& row) {
    arguments.json ? json["rows"].push_back(to_json(row)) : print(row);
  });
  if (arguments.json) std::printf("%s\n", json.dump(2).c_str());
  std::string message;
  for (const std::string& one : failed) message += "\n  " + one;
  LAMINA_CHECK(failed.empty(), failed.size(), " of ", benches.size(), " operators failed:", message);
}

}  // namespace

void add_bench_ops(CLI::App& bench) {
  auto arguments = std::make_shared<OpsArguments>();
  CLI::App* command = bench.add_subcommand(
      "ops",
      "Operators at the sizes of language models, compared with a lower bound: the time to copy their bytes, or their "
      "FLOPs in a large GEMM");
  arguments->device.add_to(*command);
  command->add_option("--dtype", arguments->dtype,
                      "Type of weights and activations: f32, bf16 or f16 (default: bf16 on a GPU, f32 on the CPU)");
  command->add_option("--filter", arguments->filter,
                      "Only operators whose name has this in it, such as 'attention' or 'norm 65536x768 backward'");
  command->add_option("--seconds", arguments->seconds, "Time spent on each figure, a median")
      ->capture_default_str()
      ->check(between(0, 1e6, true));
  command->add_flag("--quick", arguments->quick, "Tiny sizes, to see that all of them run");
  command->add_flag("--kernels", arguments->kernels,
                    "After each operator that has several kernels, time each kernel that supports the call");
  command->add_option("--peer", arguments->peer,
                      "Figures of another library to show next to ours: a file that tools/peers/torch_ops.py printed");
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->footer(
      "Calls are queued and synchronized once. If a GPU is faster than its host, a CUDA graph of many calls is timed.\n"
      "Backward is the tape's backward pass alone, with weight gradients in f32; operators that compute both in one\n"
      "pass are listed as forward+backward. Bytes and FLOPs are those that the operators report; each tensor counts\n"
      "once.");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
