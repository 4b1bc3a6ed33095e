#include "lamina/arch/cluster/cluster.h"

#include <nlohmann/json.hpp>

#include "lamina/arch/cluster/layout.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/value_json.h"
#include "lamina/arch/value_range.h"
#include "lamina/arch/value_read.h"
#include "lamina/arch/value_schema.h"
#include "lamina/base/files.h"
#include "lamina/base/suggest.h"

namespace lamina::arch {
namespace {

constexpr const char* kClusterIntroduction = R"(# The cluster file

Generated from the structs in `src/arch/cluster` by `lamina plan --cluster-schema`; a test keeps it up to date.

`lamina plan MODEL --cluster FILE --gpus N` reads a cluster from a JSON file. The presets are in `presets/clusters`.
Bytes, bytes/s, FLOP/s and seconds are written without prefixes: `312e12`. An unknown key is an error.
`--set cluster.KEY=VALUE` changes a value. [The guide](../guides/clusters.md) explains how the planner uses them.
)";

Cluster cluster_from_json(const Json& json, std::vector<Problem>& problems) {
  Cluster cluster;
  ValueReader(problems).read(json, cluster, "");
  if (cluster.schema > kClusterSchema) {
    problems.push_back({"read", "schema",
                        str("the file has version ", cluster.schema, ", this program supports ", kClusterSchema),
                        "use a newer lamina"});
  }
  RangeCheck([&problems](const std::string& path, const std::string& message) {
    problems.push_back({"range", path, message, "give the value of the data sheet in base units"});
  }).check(cluster, Limits{}, "");
  return cluster;
}

Cluster checked_cluster(const Json& json, std::vector<Problem> problems, const std::string& name) {
  Cluster cluster = cluster_from_json(json, problems);
  if (!problems.empty()) throw SpecError(name, std::move(problems));
  return cluster;
}

}  // namespace

Cluster read_cluster(std::string_view text, const std::string& name) {
  return checked_cluster(parse_json<Json>(text, name), {}, name);
}

Cluster load_cluster(const std::string& preset_or_file) {
  if (preset_or_file.ends_with(".json") || preset_or_file.find('/') != std::string::npos)
    return read_cluster(read_text(preset_or_file), preset_or_file);
  std::vector<std::string> names;
  for (const ClusterFile& file : cluster_files()) {
    if (file.name == preset_or_file) return read_cluster(file.text, preset_or_file);
    names.emplace_back(file.name);
  }
  const std::string hint = did_you_mean(preset_or_file, names);
  throw Error(str("no cluster \"", preset_or_file, "\"; ", hint, hint.empty() ? "" : " ",
                  "known: ", detail::join(names), "; the name of a file ends in .json"));
}

Cluster with_cluster_overrides(const Cluster& cluster, const std::vector<std::string>& assignments) {
  if (assignments.empty()) return cluster;
  Json json = value_to_json(cluster, Defaults::write);
  std::vector<Problem> problems;
  for (const std::string& assignment : assignments) {
    try {
      const auto [path, value] = parse_assignment(assignment);
      set_value(json, path, value, cluster_schema(), "a cluster");
    } catch (const Error& error) {
      problems.push_back({"read", "", error.what(), ""});
    }
  }
  return checked_cluster(json, std::move(problems), "--set cluster");
}

const SchemaNode& cluster_schema() {
  static const SchemaNode whole = describe<Cluster>();
  return whole;
}
const SchemaNode& layout_schema() {
  static const SchemaNode whole = describe<Layout>();
  return whole;
}
const SchemaNode& setup_schema() {
  static const SchemaNode whole = describe<TrainingSetup>();
  return whole;
}

std::string cluster_markdown() {
  const auto section = [](const char* title, const char* text, const SchemaNode& node) {
    std::string fields = fields_markdown(node);
    const std::string generic = "\n## The file\n";
    if (fields.starts_with(generic)) fields = fields.substr(generic.size());
    return str("\n## ", title, "\n\n", text, "\n", fields);
  };
  return kClusterIntroduction + fields_markdown(cluster_schema()) +
         section("A layout", "`--set layout.KEY=VALUE` fixes a value; the search chooses the others.",
                 layout_schema()) +
         section("A training setup", "`--set training.KEY=VALUE` changes a value; `--batch` and `--length` are short.",
                 setup_schema());
}

std::string to_text(const Layout& layout) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : " · ") + part; };
  const std::pair<const char*, int64_t> sizes[] = {
      {"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}, {"ep", layout.ep}};
  for (const auto& [name, size] : sizes) {
    if (size > 1) add(str(name, " ", size));
  }
  if (text.empty()) add("1 device");
  if (layout.interleave > 1) add(str("interleave ", layout.interleave));
  if (layout.zero > 0) add(str("zero ", layout.zero));
  if (layout.sequence) add("sequence");
  add(str("micro-batch ", layout.micro_batch));
  if (layout.recompute != Recompute::none)
    add(str("recompute ", names_of(layout.recompute)[static_cast<size_t>(layout.recompute)]));
  return text;
}

}  // namespace lamina::arch
