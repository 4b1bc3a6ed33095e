#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lamina/comm/environment.h"
#include "lamina/comm/socket.h"

namespace lamina::comm {

/// Result of the meeting at rank 0: every rank's value, and the connections that stay open.
struct Meeting {
  std::vector<std::string> values;  ///< indexed by rank
  /// On rank 0: the connection to each rank (entry 0 is not open). On other ranks: a single one, to rank 0.
  std::vector<Socket> connections;
};

/// First message on a connection to rank 0.
struct Hello {
  int rank = 0;
  int size = 0;
  uint32_t value_bytes = 0;  ///< length of the value that follows
};
inline constexpr size_t kHelloBytes = 16;         ///< size of an encoded hello
inline constexpr uint32_t kMaxValueBytes = 4096;  ///< longest value
/// Encodes a hello.
std::string encode_hello(const Hello& hello);
/// Decodes a hello. Empty if the bytes are not a valid hello for a job with `size` ranks.
std::optional<Hello> decode_hello(const std::string& bytes, int size);

/// All ranks meet at rank 0, which listens at the environment's master address and port, and exchange a value each.
/// `value_of` receives the local address of the connection ("" on rank 0). Connections that do not use this protocol
/// are dropped. Throws a CommError that names the missing ranks if some do not arrive in time.
Meeting meet(const RankEnvironment& environment, const std::function<std::string(const std::string& own)>& value_of,
             double seconds);

}  // namespace lamina::comm
