#include "lamina/search/index_update.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace lamina::search {
namespace {

namespace fs = std::filesystem;

/// Limits of one segment.
constexpr int64_t kMostPassages = int64_t{1} << 18U;
constexpr size_t kMostText = size_t{512} << 20U;
constexpr size_t kEmbedBatch = 64;

/// Removes files that the manifest does not name. Requires the index lock.
void remove_leftovers(const std::string& folder, const Manifest& manifest) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("segment-") || name.starts_with(std::string(kManifestFile) + ".");
    const bool named = std::any_of(manifest.segments.begin(), manifest.segments.end(),
                                   [&](const SegmentRecord& record) { return record.file == name; });
    if (ours && !named) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove(leftover, error);
}

/// Throws Error unless `folder` is absent, or a folder with nothing but files of an index: only those are replaced.
void check_replaceable(const std::string& folder) {
  if (!path_exists(folder)) return;
  LAMINA_CHECK(folder_exists(folder), folder, ": is a file, expected the name of a folder");
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool segment = name.starts_with("segment-") && name.find(".lsx") != std::string::npos;
    const bool ours = segment || name.starts_with(kManifestFile) || name == "lock";
    LAMINA_CHECK(
        ours && file_exists(entry.path()), folder, ": holds '", name,
        "', which no index has; only an index is replaced. Choose another name, or remove the folder yourself");
  }
  LAMINA_CHECK(!error, folder, ": cannot be listed: ", error.message(), "; check the permissions");
}

bool is_deleted_document(const SegmentRecord& record, int64_t document) {
  const auto after = std::upper_bound(record.deleted.begin(), record.deleted.end(), document,
                                      [](int64_t value, const auto& range) { return value < range.first; });
  return after != record.deleted.begin() && document < std::prev(after)->second;
}

}  // namespace

IndexLock::IndexLock(const std::string& folder) {
  const std::string file = folder + "/lock";
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  LAMINA_CHECK(descriptor_ >= 0, file, ": cannot be opened for writing; check the permissions");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(std::exchange(descriptor_, -1));
    throw Error(str(folder, ": another process is changing this index; wait for it or stop it first"));
  }
}

IndexLock::~IndexLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

IndexLock::IndexLock(IndexLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

IndexLock& IndexLock::operator=(IndexLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int64_t IndexUpdate::Part::live() const {
  int64_t live = segment->count();
  for (const auto& [begin, end] : record.deleted) live -= segment->first_chunk(end) - segment->first_chunk(begin);
  return live;
}

IndexUpdate IndexUpdate::create(const std::string& folder, const IndexSettings& settings, bool replace) {
  LAMINA_CHECK(settings.bm25 || settings.vectors,
               "index: neither BM25 nor vectors; leave out --no-bm25 or give --model");
  (void)chunks_of("", settings.chunks);  // throws if the options are invalid
  IndexUpdate update;
  update.manifest_.settings = settings;
  (void)Manifest::parse(update.manifest_.to_text(),
                        "the settings of the index");  // throws if the settings could not be read back
  update.folder_ = folder;
  if (replace) check_replaceable(folder);
  update.created_ = std::make_unique<NewFolder>(folder, replace);
  update.builder_ = std::make_unique<SegmentBuilder>();
  return update;
}

IndexUpdate IndexUpdate::open(const std::string& folder) {
  LAMINA_CHECK(file_exists(folder + "/" + kManifestFile), folder, ": is not an index: ", kManifestFile,
               " is missing; build one with `lamina index build TEXTS --out ", folder, "`");
  IndexUpdate update;
  update.folder_ = folder;
  update.lock_ = IndexLock(folder);
  update.manifest_ = Manifest::read(folder);
  remove_leftovers(folder, update.manifest_);
  for (const SegmentRecord& record : update.manifest_.segments) {
    auto segment = std::make_shared<const Segment>(Segment::open(folder + "/" + record.file));
    LAMINA_CHECK(record.deleted.empty() || record.deleted.back().second <= segment->document_count(), record.file,
                 ": more documents are deleted than there are; build the index again");
    update.parts_.push_back({record, std::move(segment)});
  }
  update.old_parts_ = update.parts_.size();
  update.builder_ = std::make_unique<SegmentBuilder>();
  return update;
}

std::string IndexUpdate::path(const std::string& file) const {
  return created_ ? created_->path(file) : folder_ + "/" + file;
}

SegmentBuilder::WriteOptions IndexUpdate::write_options() const {
  SegmentBuilder::WriteOptions options;
  options.bm25 = settings().bm25;
  if (settings().vectors) {
    options.metric = settings().vectors->metric;
    options.graph_from = settings().vectors->graph_from;
    options.graph = settings().vectors->graph;
  }
  return options;
}

void IndexUpdate::embed_pending() {
  if (!settings().vectors || builder_->pending().empty()) return;
  LAMINA_CHECK(embedder_, "index: passages need vectors, but no model was given (internal error, please report it)");
  builder_->add_vectors(embedder_(builder_->pending()), settings().vectors->dtype, settings().vectors->dim);
}

int64_t IndexUpdate::add(const std::string& name, std::string_view text, const Threads& threads) {
  LAMINA_CHECK(!name.empty(), "index: a document has no name; give one");
  const std::vector<Chunk> chunks = chunks_of(text, settings().chunks);
  LAMINA_CHECK(added_.insert(name).second, name, ": is given twice; name each source once");
  if (chunks.empty()) return 0;  // commit() still deletes the document that had this name
  builder_->add(name, text, chunks);
  if (!settings().vectors) builder_->pending().clear();
  if (builder_->pending().size() >= kEmbedBatch) embed_pending();
  if (builder_->count() >= kMostPassages || builder_->text_bytes() >= kMostText) flush(threads);
  return static_cast<int64_t>(chunks.size());
}

void IndexUpdate::write_part(const SegmentBuilder& builder, const Threads& threads, size_t at) {
  const std::string file = segment_file(manifest_.next++);
  builder.write(path(file), write_options(), threads);
  auto segment = std::make_shared<const Segment>(Segment::open(path(file)));
  parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(at), Part{{file, {}}, std::move(segment)});
}

void IndexUpdate::flush(const Threads& threads) {
  if (builder_->count() == 0) return;
  embed_pending();
  write_part(*builder_, threads, parts_.size());
  builder_ = std::make_unique<SegmentBuilder>();
}

void IndexUpdate::mark_deleted(Part& part, const std::function<bool(std::string_view)>& is_deleted, int64_t& count) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t document = 0; document < part.segment->document_count(); ++document) {
    const bool before = is_deleted_document(part.record, document);
    if (!before && !is_deleted(part.segment->document_name(document))) continue;
    count += before ? 0 : 1;
    if (!ranges.empty() && ranges.back().second == document) {
      ++ranges.back().second;
    } else {
      ranges.emplace_back(document, document + 1);
    }
  }
  part.record.deleted = std::move(ranges);
}

int64_t IndexUpdate::remove(const std::string& name) {
  int64_t count = 0;
  const auto matches = [&](std::string_view document) {
    return document == name ||
           (document.starts_with(name) && document.size() > name.size() && document[name.size()] == ':');
  };
  for (size_t i = 0; i < old_parts_; ++i) mark_deleted(parts_[i], matches, count);
  return count;
}

void IndexUpdate::merge(size_t begin, size_t end, const Threads& threads) {
  SegmentBuilder merged;
  for (size_t i = begin; i < end; ++i) {
    const Part& part = parts_[i];
    for (int64_t document = 0; document < part.segment->document_count(); ++document) {
      if (!is_deleted_document(part.record, document)) merged.copy(*part.segment, document);
    }
  }
  parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(begin), parts_.begin() + static_cast<std::ptrdiff_t>(end));
  if (merged.count() > 0) write_part(merged, threads, begin);
}

void IndexUpdate::commit(const Threads& threads, bool compact) {
  flush(threads);
  int64_t replaced = 0;
  const auto is_replaced = [&](std::string_view document) { return added_.contains(document); };
  for (size_t i = 0; i < old_parts_; ++i) mark_deleted(parts_[i], is_replaced, replaced);
  if (compact && parts_.size() + (parts_.empty() ? 0 : parts_[0].record.deleted.size()) > 1) {
    merge(0, parts_.size(), threads);
  }
  for (size_t i = parts_.size(); i-- > 0;) {
    if (2 * parts_[i].live() < parts_[i].segment->count()) merge(i, i + 1, threads);
  }
  while (parts_.size() > 1) {
    const int64_t last = parts_.back().live();
    const int64_t before = parts_[parts_.size() - 2].live();
    if (before > 2 * last || before + last > kMostPassages) break;
    merge(parts_.size() - 2, parts_.size(), threads);
  }
  manifest_.segments.clear();
  for (const Part& part : parts_) manifest_.segments.push_back(part.record);
  ++manifest_.next;  // every commit has a different number, which readers compare
  write_text(path(kManifestFile), manifest_.to_text());
  remove_leftovers(created_ ? created_->path("") : folder_, manifest_);
  if (!created_) return;
  check_replaceable(folder_);  // files may have been added meanwhile
  created_->publish();
}

}  // namespace lamina::search
