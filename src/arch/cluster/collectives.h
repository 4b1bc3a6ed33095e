#pragma once

#include "lamina/arch/cluster/cluster.h"

namespace lamina::arch {

/// A group of devices that communicate: `size` of them, `per_node` of which share a node.
struct DeviceGroup {
  double size = 1;
  double per_node = 1;
};

/// The group of every stride-th device, if `stride` devices in between belong to other groups.
DeviceGroup group_with_stride(const Cluster& cluster, double size, double stride);

/// Seconds of collectives of `bytes` (the whole tensor) in a ring: latency of every hop plus volume / bandwidth
/// (Thakur et al. 2005). A ring that leaves the node moves its volume over the network links of min(per_node, rails)
/// devices. `messages` collectives of the same total size pay the latency as often.
double all_gather_seconds(const Cluster& cluster, DeviceGroup group, double bytes, double messages = 1);
/// All-gather's time: a ring reduce-scatter moves the same volume.
double reduce_scatter_seconds(const Cluster& cluster, DeviceGroup group, double bytes, double messages = 1);
/// Reduce-scatter and all-gather, or a double binary tree across nodes if that is faster.
double all_reduce_seconds(const Cluster& cluster, DeviceGroup group, double bytes);
/// Every device sends bytes / size to every other. Devices of other nodes are reached over the device's own link.
double all_to_all_seconds(const Cluster& cluster, DeviceGroup group, double bytes);
/// One message between two devices of the same node or of different nodes.
double send_seconds(const Cluster& cluster, bool same_node, double bytes);

}  // namespace lamina::arch
