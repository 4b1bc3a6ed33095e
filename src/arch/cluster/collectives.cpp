#include "lamina/arch/cluster/collectives.h"

#include <algorithm>
#include <cmath>

namespace lamina::arch {
namespace {

struct RingCost {
  double hop = 0;        ///< seconds per hop
  double bandwidth = 0;  ///< bytes/s
};

RingCost ring_cost(const Cluster& cluster, DeviceGroup group) {
  const double inside = cluster.node.bandwidth * cluster.node.efficiency;
  if (group.per_node >= group.size) return {cluster.node.latency, inside};
  const double links = std::min(group.per_node, static_cast<double>(cluster.network.rails));
  const double outside = cluster.network.bandwidth * cluster.network.efficiency * links;
  // The latency of a hop, averaged: one of per_node consecutive hops leaves the node.
  const double hop =
      ((group.per_node - 1) * cluster.node.latency + cluster.network.latency) / std::max(1.0, group.per_node);
  return {hop, group.per_node > 1 ? std::min(inside, outside) : outside};
}

}  // namespace

DeviceGroup group_with_stride(const Cluster& cluster, double size, double stride) {
  const auto node = static_cast<double>(cluster.devices_per_node);
  return {size, std::clamp(std::floor(node / stride), 1.0, size)};
}

double all_gather_seconds(const Cluster& cluster, DeviceGroup group, double bytes, double messages) {
  if (group.size <= 1) return 0;
  const RingCost ring = ring_cost(cluster, group);
  const double steps = group.size - 1;
  return steps * ring.hop * messages + bytes * steps / group.size / ring.bandwidth;
}

double reduce_scatter_seconds(const Cluster& cluster, DeviceGroup group, double bytes, double messages) {
  return all_gather_seconds(cluster, group, bytes, messages);
}

double all_reduce_seconds(const Cluster& cluster, DeviceGroup group, double bytes) {
  if (group.size <= 1) return 0;
  const double ring = 2 * all_gather_seconds(cluster, group, bytes);
  if (group.per_node >= group.size) return ring;
  const double depth = std::log2(group.size / group.per_node);
  const double latency = 2 * (depth * cluster.network.latency + (group.per_node - 1) * cluster.node.latency);
  return std::min(ring, latency + 2 * bytes / ring_cost(cluster, group).bandwidth);
}

double all_to_all_seconds(const Cluster& cluster, DeviceGroup group, double bytes) {
  if (group.size <= 1) return 0;
  const double each = bytes / group.size;
  const double inside =
      each * (group.per_node - 1) / (cluster.node.bandwidth * cluster.node.efficiency) + cluster.node.latency;
  if (group.per_node >= group.size) return inside;
  const double outside =
      each * (group.size - group.per_node) / (cluster.network.bandwidth * cluster.network.efficiency) +
      cluster.network.latency;
  return std::max(inside, outside);
}

double send_seconds(const Cluster& cluster, bool same_node, double bytes) {
  const Link& link = same_node ? cluster.node : cluster.network;
  return link.latency + bytes / (link.bandwidth * link.efficiency);
}

}  // namespace lamina::arch
