#include <cmath>
#include <limits>

#include "lamina/base/error.h"
#include "lamina/base/philox.h"
#include "lamina/search/hnsw_traversal.h"

namespace lamina::search {
namespace {

constexpr int kHighestLevel = 31;
constexpr int64_t kMostRows = int64_t{1} << 31U;  // traversals use the top bit of a row number
constexpr int64_t kRowsPerTask = 32;

/// A link from `source` to add to the list of `target`.
struct NewLink {
  int level;
  uint32_t target;
  uint32_t source;
  bool operator<(const NewLink& other) const {
    if (level != other.level) return level < other.level;
    return target != other.target ? target < other.target : source < other.source;
  }
};

class HnswBuilder {
 public:
  HnswBuilder(const VectorsView& vectors, Metric metric, const HnswOptions& options, const Threads& threads)
      : vectors_(vectors),
        metric_(metric),
        options_(options),
        threads_(threads),
        scales_(distance_scales(vectors, metric)) {
    graph_.links = options.links;
    draw_levels();
  }

  HnswGraph build() {
    const int64_t largest = std::max<int64_t>(1, vectors_.count / 50);
    for (int64_t begin = 1; begin < vectors_.count;) {  // row 0 is inserted from the start
      const int64_t end = std::min({vectors_.count, begin + begin, begin + largest});
      insert(begin, end);
      begin = end;
    }
    return std::move(graph_);
  }

 private:
  /// Draws the level of each row: geometrically distributed, with the paper's factor 1/ln M, from the row's random
  /// numbers.
  void draw_levels() {
    const auto count = static_cast<size_t>(vectors_.count);
    graph_.levels.resize(count);
    graph_.upper_starts.resize(count);
    uint32_t lists = 0;
    const double factor = 1 / std::log(static_cast<double>(options_.links));
    for (size_t row = 0; row < count; ++row) {
      const double uniform = (philox_word({options_.seed, 0}, row) + 0.5) * 0x1p-32;
      const auto level = static_cast<int>(std::min<double>(kHighestLevel, std::floor(-std::log(uniform) * factor)));
      graph_.levels[row] = static_cast<uint8_t>(level);
      graph_.upper_starts[row] = lists;
      lists += static_cast<uint32_t>(level);
    }
    graph_.base.assign(count * static_cast<size_t>(2 * options_.links + 1), 0);
    graph_.upper.assign(lists * static_cast<size_t>(options_.links + 1), 0);
  }

  uint32_t* list(uint32_t row, int level) { return const_cast<uint32_t*>(graph_.view().list(row, level)); }
  int64_t most_links(int level) const { return level == 0 ? 2 * options_.links : options_.links; }
  DistanceFrom distances() const { return {vectors_, metric_, scales_.empty() ? nullptr : scales_.data()}; }

  /// The paper's heuristic: beginning with the nearest row, keeps a row if it is nearer to the query than to every row
  /// kept so far.
  std::vector<uint32_t> select(const std::vector<Distant>& candidates, int64_t most) const {
    std::vector<uint32_t> kept;
    std::vector<float> row(static_cast<size_t>(vectors_.dim));
    std::vector<float> between(static_cast<size_t>(most));
    DistanceFrom distance = distances();
    distance.query = row.data();
    for (const Distant& candidate : candidates) {
      if (static_cast<int64_t>(kept.size()) == most) break;
      read_row(candidate.row, row);
      const auto n = static_cast<int64_t>(kept.size());
      distance(kept.data(), n, between.data());
      const bool redundant =
          std::any_of(between.begin(), between.begin() + n, [&](float other) { return other < candidate.distance; });
      if (!redundant) kept.push_back(candidate.row);
    }
    return kept;
  }

  void read_row(uint32_t row, std::vector<float>& to) const { search::read_row(vectors_, row, to); }

  /// Chooses the links of a row, and appends the reverse links to `reverse`.
  void link_row(uint32_t row, Traversal& traversal, std::vector<float>& query, std::vector<NewLink>& reverse) {
    const HnswView graph = graph_.view();
    DistanceFrom distance = distances();
    read_row(row, query);
    distance.query = query.data();
    auto nearest = static_cast<uint32_t>(graph_.entry);
    const int top = graph_.levels[nearest];
    for (int level = top; level > graph_.levels[row]; --level) {
      nearest = traversal.descend(graph, distance, level, nearest);
    }
    for (int level = std::min<int>(top, graph_.levels[row]); level >= 0; --level) {
      const std::vector<Distant>& found = traversal.search(graph, distance, level, nearest, options_.beam);
      nearest = found[0].row;
      const std::vector<uint32_t> kept = select(found, options_.links);
      uint32_t* own = list(row, level);
      own[0] = static_cast<uint32_t>(kept.size());
      std::copy(kept.begin(), kept.end(), own + 1);
      for (const uint32_t target : kept) reverse.push_back({level, target, row});
    }
  }

  /// Adds links to the list of one row. If there are too many, selects among old and new ones.
  void add_links(std::span<const NewLink> links) {
    const int level = links[0].level;
    const uint32_t target = links[0].target;
    uint32_t* own = list(target, level);
    const int64_t most = most_links(level);
    if (own[0] + links.size() <= static_cast<size_t>(most)) {
      for (const NewLink& link : links) own[++own[0]] = link.source;
      return;
    }
    std::vector<uint32_t> rows(own + 1, own + 1 + own[0]);
    for (const NewLink& link : links) rows.push_back(link.source);
    std::vector<float> query(static_cast<size_t>(vectors_.dim));
    read_row(target, query);
    DistanceFrom distance = distances();
    distance.query = query.data();
    std::vector<float> values(rows.size());
    distance(rows.data(), static_cast<int64_t>(rows.size()), values.data());
    std::vector<Distant> candidates(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) candidates[i] = {values[i], rows[i]};
    std::sort(candidates.begin(), candidates.end());
    const std::vector<uint32_t> kept = select(candidates, most);
    own[0] = static_cast<uint32_t>(kept.size());
    std::copy(kept.begin(), kept.end(), own + 1);
  }

  void insert(int64_t begin, int64_t end) {
    const int64_t tasks = (end - begin + kRowsPerTask - 1) / kRowsPerTask;
    std::vector<std::vector<NewLink>> reverse(static_cast<size_t>(tasks));
    threads_.tasks(tasks, [&](int64_t task) {
      Traversal traversal(vectors_.count);
      std::vector<float> query(static_cast<size_t>(vectors_.dim));
      const int64_t first = begin + task * kRowsPerTask;
      for (int64_t row = first; row < std::min(end, first + kRowsPerTask); ++row) {
        link_row(static_cast<uint32_t>(row), traversal, query, reverse[static_cast<size_t>(task)]);
      }
    });
    std::vector<NewLink> links;
    for (const std::vector<NewLink>& some : reverse) links.insert(links.end(), some.begin(), some.end());
    std::sort(links.begin(), links.end());
    std::vector<size_t> starts;  // where each changed list begins in `links`
    for (size_t i = 0; i < links.size(); ++i) {
      if (i == 0 || links[i].level != links[i - 1].level || links[i].target != links[i - 1].target) starts.push_back(i);
    }
    threads_.ranges(static_cast<int64_t>(starts.size()), kRowsPerTask, [&](int64_t from, int64_t to) {
      for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i) {
        const size_t stop = i + 1 < starts.size() ? starts[i + 1] : links.size();
        add_links(std::span(links).subspan(starts[i], stop - starts[i]));
      }
    });
    for (int64_t row = begin; row < end; ++row) {
      if (graph_.levels[static_cast<size_t>(row)] > graph_.levels[static_cast<size_t>(graph_.entry)])
        graph_.entry = row;
    }
  }

  const VectorsView& vectors_;
  Metric metric_;
  HnswOptions options_;
  const Threads& threads_;
  std::vector<float> scales_;
  HnswGraph graph_;
};

}  // namespace

HnswGraph build_hnsw(const VectorsView& vectors, Metric metric, const HnswOptions& options, const Threads& threads) {
  LAMINA_CHECK(options.links >= 2 && options.links <= 128, "hnsw: ", options.links, " links; expected 2 to 128");
  LAMINA_CHECK(options.beam >= options.links && options.beam <= 65536, "hnsw: a beam of ", options.beam,
               "; expected at least the number of links, ", options.links, ", and at most 65536");
  LAMINA_CHECK(vectors.count < kMostRows, "hnsw: ", vectors.count, " rows; expected fewer than 2^31");
  return HnswBuilder(vectors, metric, options, threads).build();
}

void check_hnsw(const HnswView& graph, const std::string& name) {
  const auto count = static_cast<size_t>(graph.count);
  const auto links = static_cast<size_t>(graph.links);
  LAMINA_CHECK(graph.count >= 0 && graph.count < kMostRows && graph.links >= 2 && graph.links <= 128, name,
               ": a graph of ", graph.count, " rows and ", graph.links,
               " links; expected fewer than 2^31 and 2 to 128");
  LAMINA_CHECK(graph.levels.size() == count && graph.upper_starts.size() == count &&
                   graph.base.size() == count * (2 * links + 1),
               name, ": the graph's parts do not have the size of ", count, " rows; build the index again");
  uint64_t lists = 0;
  for (const uint8_t level : graph.levels) lists += level;
  LAMINA_CHECK(graph.upper.size() == lists * (links + 1), name, ": the graph's upper levels have ", graph.upper.size(),
               " numbers, expected ", lists * (links + 1), "; build the index again");
  LAMINA_CHECK(count == 0 || (graph.entry >= 0 && graph.entry < graph.count), name, ": the graph begins at row ",
               graph.entry, " of ", count, "; build the index again");
  const int top = count == 0 ? 0 : graph.levels[static_cast<size_t>(graph.entry)];
  lists = 0;
  for (uint32_t row = 0; row < count; ++row) {
    const int highest = graph.levels[row];
    LAMINA_CHECK(highest <= top && highest <= kHighestLevel && graph.upper_starts[row] == lists, name, ": row ", row,
                 " of the graph has a wrong level; build the index again");
    lists += static_cast<uint64_t>(highest);
    for (int level = 0; level <= highest; ++level) {
      const uint32_t* list = graph.list(row, level);
      bool right = list[0] <= (level == 0 ? 2 * links : links);
      for (uint32_t i = 1; right && i <= list[0]; ++i) right = list[i] < count && graph.levels[list[i]] >= level;
      LAMINA_CHECK(right, name, ": a link of row ", row, " is out of range; build the index again");
    }
  }
}

}  // namespace lamina::search
