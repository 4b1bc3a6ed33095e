#pragma once

#include "lamina/arch/cluster/cluster.h"

namespace lamina::arch {

/// A group of `size` devices that communicate; `per_node` of them share a node.
struct DeviceGroup {
  double size = 1;
  double per_node = 1;
};

/// The group that consists of every stride-th device.
DeviceGroup group_with_stride(const Cluster& cluster, double size, double stride);

/// Duration of ring collectives of `bytes` (the whole tensor), in seconds: the latency of every hop plus volume /
/// bandwidth (Thakur et al. 2005). A ring that leaves the node uses the network links of min(per_node, rails) devices.
/// With `messages` collectives of the same total size, the latency counts that many times.
double all_gather_seconds(const Cluster& cluster, DeviceGroup group, double bytes, double messages = 1);
/// Takes as long as an all-gather, because a ring reduce-scatter moves the same volume.
double reduce_scatter_seconds(const Cluster& cluster, DeviceGroup group, double bytes, double messages = 1);
/// Reduce-scatter plus all-gather, or a double binary tree across nodes if that is faster.
double all_reduce_seconds(const Cluster& cluster, DeviceGroup group, double bytes);
/// Every device sends bytes / size to every other device. Devices of other nodes are reached over the sender's own
/// link.
double all_to_all_seconds(const Cluster& cluster, DeviceGroup group, double bytes);
/// One message between two devices of the same node or of different nodes.
double send_seconds(const Cluster& cluster, bool same_node, double bytes);

}  // namespace lamina::arch
