// Reads any bytes as a segment of an index, as a store of states, and as a manifest: gives an Error, or an object that
// can be searched.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lamina/base/crc32c.h"
#include "lamina/base/error.h"
#include "lamina/search/index.h"
#include "lamina/search/state_store.h"

namespace {

using lamina::search::SectionHeader;

/// A fuzzer cannot guess checksums. Valid ones are inserted, so that it reaches the code after the checks.
void insert_checksums(std::byte* bytes, size_t size) {
  if (size < sizeof(SectionHeader)) return;
  SectionHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  std::memcpy(header.magic, lamina::search::kSectionMagic, sizeof(header.magic));
  header.version = lamina::search::kSectionVersion;
  header.file_bytes = size;
  for (auto& entry : header.table) {
    entry.offset = entry.offset / lamina::search::kSectionAlign * lamina::search::kSectionAlign;
    if (entry.offset <= size && entry.bytes <= size - entry.offset) {
      entry.checksum = lamina::crc32c(bytes + entry.offset, entry.bytes);
    }
  }
  header.checksum = 0;
  header.checksum = lamina::crc32c(&header, sizeof(header));
  std::memcpy(bytes, &header, sizeof(header));
}

void search_segment(const lamina::search::Segment& segment, const lamina::Threads& threads) {
  using namespace lamina::search;
  for (int64_t chunk = 0; chunk < segment.count() && chunk < 64; ++chunk) {
    (void)segment.text(chunk);
    (void)segment.document_name(segment.document_of(chunk));
  }
  if (segment.bm25()) {
    const Bm25Search words(std::vector<Bm25Segment>{{&*segment.bm25(), {}, {}}});
    (void)words.search("a b word", 3);
  }
  if (!segment.vectors()) return;
  const std::vector<float> query(static_cast<size_t>(segment.vectors()->dim), 0.5F);
  for (const Metric metric : {Metric::cosine, Metric::l2}) {
    (void)FlatSearch(*segment.vectors(), metric).search(query, 3, threads);
    if (segment.graph()) (void)HnswSearch(*segment.vectors(), *segment.graph(), metric).search(query, 3, 8, threads);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lamina::search;
  static const lamina::Threads threads(1);
  // An exact-size copy, so that AddressSanitizer detects reads beyond its end; aligned as mapped files are.
  void* memory = nullptr;
  if (::posix_memalign(&memory, kSectionAlign, size) != 0) return 0;
  const std::shared_ptr<std::byte> bytes(static_cast<std::byte*>(memory), std::free);
  if (size > 0) std::memcpy(bytes.get(), data, size);
  insert_checksums(bytes.get(), size);
  for (const char* kind : {"SEGM", "KNNS"}) {
    try {
      SectionFile file = SectionFile::parse({{bytes.get(), size}, bytes}, "fuzz", kind);
      if (std::strcmp(kind, "SEGM") == 0) {
        search_segment(Segment::parse(std::move(file)), threads);
      } else {
        const auto store = StateStore::parse(std::move(file));
        const std::vector<float> query(static_cast<size_t>(store->dim()), 0.5F);
        const auto found = store->search(query, 3, store->has_graph() ? 8 : 0, threads);
        for (const Neighbor& neighbor : found[0]) {
          (void)store->token(neighbor.row);
        }
      }
    } catch (const lamina::Error&) {
    }
  }
  try {
    (void)Manifest::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz").to_text();
  } catch (const lamina::Error&) {
  }
  return 0;
}
