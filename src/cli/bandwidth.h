#pragma once

#include "lamina/tensor/device.h"

namespace lamina::cli {

/// Bytes read and written a second by copying, `bytes` of both together at a time: the best of some rounds.
double copy_bandwidth(const Device& device, int64_t bytes);
/// Bytes a second of reading a buffer of `bytes` with all threads, the best of some rounds; on a GPU, whose memory
/// serves reading and writing alike, copy_bandwidth.
double read_bandwidth(const Device& device, int64_t bytes);

}  // namespace lamina::cli
