#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/comm/environment.h"
#include "lamina/comm/socket.h"

namespace lamina::comm {

/// Result of meeting at rank 0: every rank's value, and the connections that remain open.
struct Meeting {
  std::vector<std::string> values;  ///< by rank
  /// Rank 0: the connection of each rank (entry 0 is not open). Others: one, to rank 0.
  std::vector<Socket> connections;
};

/// First message of a connection to rank 0's store.
struct Hello {
  int rank = 0;
  int size = 0;
  uint32_t value_bytes = 0;  ///< length of the value that follows
};
inline constexpr size_t kHelloBytes = 16;         ///< encoded
inline constexpr uint32_t kMaxValueBytes = 4096;  ///< longest value
/// Encodes a hello.
std::string encode_hello(const Hello& hello);
/// Empty if the bytes are not a valid hello. Its size may differ from the number of ranks that rank 0 expects.
std::optional<Hello> decode_hello(const std::string& bytes);

/// All ranks meet at rank 0, which listens at the environment's master address and port, and learn every rank's value.
/// `value_of` gets the local address of the connection ("" on rank 0). Connections that do not speak this protocol are
/// dropped. Throws CommError that names the missing ranks if some do not come in time, and Error if ranks were started with
/// different numbers of ranks. Rank 0 tells the ranks that came why it gives up, and they throw the same.
Meeting meet(const RankEnvironment& environment, const std::function<std::string(const std::string& own)>& value_of,
             double seconds);

}  // namespace lamina::comm
