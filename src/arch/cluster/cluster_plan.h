#pragma once

#include <string>
#include <vector>

#include "lamina/arch/cluster/search.h"

namespace lamina::arch {

/// Input of make_cluster_plan().
struct ClusterPlanOptions {
  std::string cluster;                 ///< preset or file
  int64_t devices = 1;                 ///< number of devices to use
  TrainingSetup setup;                 ///< batch 0: about 4 million tokens; length 0: the model's context, at most 8192
  std::vector<std::string> overrides;  ///< "layout.…=", "training.…=" and "cluster.…=" assignments
  size_t most = 5;                     ///< maximum number of layouts to list
};

/// Layouts for a model on a cluster, fastest first.
struct ClusterPlan {
  std::string name;          ///< name of the architecture
  std::string cluster_name;  ///< cluster preset or file
  Cluster cluster;
  int64_t devices = 1;
  TrainingSetup setup;
  ModelShape model;
  LayoutSearch search;
};

/// Whether an assignment belongs to a cluster plan rather than to the architecture.
bool is_cluster_override(const std::string& assignment);

/// Throws an Error if no layout is possible or none fits. The message says by how much the smallest one exceeds the
/// memory.
ClusterPlan make_cluster_plan(const std::string& name, const ArchSpec& resolved, const ClusterPlanOptions& options);

std::string to_text(const ClusterPlan& plan);       ///< The plan as `lamina plan --cluster` prints it.
std::string to_json_text(const ClusterPlan& plan);  ///< The plan as JSON.

/// An SVG picture of a step under the fastest layout: the passes of every pipeline stage over time, the parts of the
/// step, and the memory of a device. Colours follow the reader's preference for light or dark.
std::string draw_timeline(const ClusterPlan& plan);

}  // namespace lamina::arch
