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

/// Makes the vectors [texts, dim] of passages.
using Embedder = std::function<std::vector<float>(std::span<const std::string> texts)>;

/// Exclusive lock on an index folder. The kernel releases it when the process ends, even after a crash.
class IndexLock {
 public:
  IndexLock() = default;
  /// Throws Error if another process holds the lock.
  explicit IndexLock(const std::string& folder);
  ~IndexLock();
  IndexLock(IndexLock&& other) noexcept;             ///< `other` holds nothing then
  IndexLock& operator=(IndexLock&& other) noexcept;  ///< exchanges the locks

 private:
  int descriptor_ = -1;
};

/// A change of an index folder that becomes visible as a whole: new segments are written as new files, and commit()
/// replaces the manifest last. A process killed at any point leaves the old or the new state; the next update removes
/// files that no manifest names.
class IndexUpdate {
 public:
  /// A new index. It appears under its name at commit(). Throws Error if `folder` exists, unless `replace` is set
  /// and it holds nothing but an index.
  static IndexUpdate create(const std::string& folder, const IndexSettings& settings, bool replace);
  /// A change of an existing index. Throws Error if another process is changing it.
  static IndexUpdate open(const std::string& folder);

  const IndexSettings& settings() const { return manifest_.settings; }  ///< of the index
  /// Needed before add() if the index has vectors. Called with up to 64 passages.
  void set_embedder(Embedder embedder) { embedder_ = std::move(embedder); }

  /// Adds a document, which replaces an older one of the same name. Throws Error if this update has added the name
  /// before. A document without words is ignored; returns the number of passages.
  int64_t add(const std::string& name, std::string_view text, const Threads& threads);
  /// Deletes all documents of this name, and of names that begin with it and a colon (lines of a .jsonl file). Returns
  /// how many there were.
  int64_t remove(const std::string& name);
  /// Makes the change visible. Small segments are merged and mostly deleted ones rewritten, so that the number of
  /// segments grows with the logarithm of the passages. `compact`: all become one.
  void commit(const Threads& threads, bool compact = false);

 private:
  struct Part {
    SegmentRecord record;
    std::shared_ptr<const Segment> segment;
    int64_t live() const;  ///< passages that are not deleted
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
  size_t old_parts_ = 0;  ///< parts before this update
  std::set<std::string, std::less<>> added_;
  std::unique_ptr<SegmentBuilder> builder_;
  Embedder embedder_;
};

}  // namespace lamina::search
