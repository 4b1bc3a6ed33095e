#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lamina/base/files.h"
#include "lamina/base/threads.h"
#include "lamina/search/manifest.h"

namespace lamina::search {

/// Computes the vectors [texts, dim] of texts.
using Embedder = std::function<std::vector<float>(std::span<const std::string> texts)>;

/// Exclusive lock on an index folder. The kernel releases it when the process ends, even after a crash.
class IndexLock {
 public:
  IndexLock() = default;
  /// Throws Error if another process holds the lock.
  explicit IndexLock(const std::string& folder);
  ~IndexLock();
  IndexLock(IndexLock&& other) noexcept;             ///< `other` then holds nothing
  IndexLock& operator=(IndexLock&& other) noexcept;  ///< swaps the locks

 private:
  int descriptor_ = -1;
};

/// An update of an index folder that becomes visible atomically: new segments are written to new files, and commit()
/// replaces the manifest last. If the process is killed at any point, the folder has the old or the new state; the next
/// update removes files that no manifest names.
class IndexUpdate {
 public:
  /// Starts a new index. It becomes visible at commit(). Throws an Error if `folder` exists, unless `replace` is set
  /// and it holds nothing but an index.
  static IndexUpdate create(const std::string& folder, const IndexSettings& settings, bool replace);
  /// Starts an update of an existing index. Throws an Error if another process is updating it.
  static IndexUpdate open(const std::string& folder);

  const IndexSettings& settings() const { return manifest_.settings; }  ///< settings of the index
  /// Required before add() if the index has vectors. The embedder is called with up to 64 passages.
  void set_embedder(Embedder embedder) { embedder_ = std::move(embedder); }

  /// Adds a document; it replaces an older one with the same name. Returns its number of passages: a document without
  /// words has none, and only deletes the older one. Throws an Error if this update already added a document with this
  /// name.
  int64_t add(const std::string& name, std::string_view text, const Threads& threads);
  /// Deletes all documents with this name, and those whose name continues with a colon (lines of a .jsonl file).
  /// Returns the number of deleted documents.
  int64_t remove(const std::string& name);
  /// Makes the update visible. Small segments are merged and mostly deleted ones are rewritten, so that the number of
  /// segments grows with the logarithm of the number of passages. `compact` merges all segments into one.
  void commit(const Threads& threads, bool compact = false);

 private:
  struct Part {
    SegmentRecord record;
    std::shared_ptr<const Segment> segment;
    int64_t live() const;  ///< number of passages that are not deleted
  };
  IndexUpdate() = default;
  std::string path(const std::string& file) const;
  void mark_deleted(Part& part, const std::function<bool(std::string_view)>& is_deleted, int64_t& count);
  void flush(const Threads& threads);
  void embed_pending();
  SegmentBuilder::WriteOptions write_options() const;
  void merge(size_t begin, size_t end, const Threads& threads);
  void write_part(const SegmentBuilder& builder, const Threads& threads, size_t at);

  std::string folder_;
  IndexLock lock_;
  std::unique_ptr<NewFolder> created_;
  Manifest manifest_;
  std::vector<Part> parts_;
  size_t old_parts_ = 0;  ///< number of parts before this update
  std::set<std::string, std::less<>> added_;
  std::unique_ptr<SegmentBuilder> builder_;
  Embedder embedder_;
};

}  // namespace lamina::search
