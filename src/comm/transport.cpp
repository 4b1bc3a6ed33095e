#include "lamina/comm/transport.h"

#include <algorithm>

namespace lamina::comm {
namespace {

constexpr uint32_t kMagic = 0x4c4d4e31;  // "LMN1"; verifies that both ends use the same protocol

std::string described(Operation operation, std::string_view label, int64_t update) {
  std::string text(name_of(operation));
  if (!label.empty()) text += str(" \"", label, "\"");
  if (update > 0) text += str(" of update ", update);
  return text;
}

}  // namespace

CallHeader header_of(const Call& call, uint64_t bytes) {
  CallHeader header{kMagic, static_cast<uint32_t>(call.operation), call.group, 0, call.sequence, call.update, bytes,
                    {}};
  const size_t length = std::min(call.label.size(), header.label.size() - 1);
  std::copy_n(call.label.begin(), length, header.label.begin());
  return header;
}

std::string mismatch(const Call& call, const CallHeader& got, uint64_t bytes) {
  if (got.magic != kMagic) return "its message is not of this program; start all ranks from one version of lamina";
  const CallHeader own = header_of(call, bytes);
  if (got.group == own.group && got.sequence == own.sequence && got.operation == own.operation &&
      got.label == own.label && got.bytes == own.bytes) {
    return {};
  }
  const bool known = got.operation < names_of(Operation{}).size();
  const auto end = std::find(got.label.begin(), got.label.end(), '\0');
  const std::string_view label(got.label.data(), static_cast<size_t>(end - got.label.begin()));
  return str("it is in ", known ? described(static_cast<Operation>(got.operation), label, got.update) : "no known call",
             " with ", got.bytes, " bytes (call ", got.sequence, " of group ", got.group, "), this rank expects ",
             bytes, " bytes (call ", call.sequence, " of group ", call.group,
             "); all ranks must make the same calls in the same order");
}

std::string describe(const Call& call) { return described(call.operation, call.label, call.update); }

}  // namespace lamina::comm
