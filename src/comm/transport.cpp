#include "lamina/comm/transport.h"

#include <algorithm>
#include <vector>

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

void Transport::exchange_in_place(const Call& call, std::span<const Send> sends, std::span<const Receive> receives,
                                  const std::function<void(std::span<const void* const> messages)>& use) {
  constexpr size_t kAlignment = 64;
  const auto space = [](const Receive& receive) { return (receive.bytes + kAlignment - 1) / kAlignment * kAlignment; };
  size_t total = 0;
  for (const Receive& receive : receives) total += space(receive);
  if (total > capacity_) {
    messages_.reset();
    messages_ = std::make_unique_for_overwrite<char[]>(total);
    capacity_ = total;
  }
  std::vector<Receive> copies(receives.begin(), receives.end());
  std::vector<const void*> messages;
  size_t at = 0;
  for (Receive& copy : copies) {
    copy.data = messages_.get() + at;
    messages.push_back(copy.data);
    at += space(copy);
  }
  exchange(call, sends, copies);
  use(messages);
}

std::string describe(const Call& call) { return described(call.operation, call.label, call.update); }

}  // namespace lamina::comm
