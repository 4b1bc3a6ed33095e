// Leaves out each collective of an update in turn. A test that compares with one process must notice every time.
#include "parallel/parallel_support.h"

namespace lamina::testing {
namespace {

/// Skips all calls with one label; results are what this rank alone has.
class MutedCommunicator final : public comm::Communicator {
 public:
  MutedCommunicator(std::shared_ptr<comm::Communicator> inner, std::string muted, std::atomic<int>& skipped)
      : inner_(std::move(inner)), muted_(std::move(muted)), skipped_(skipped) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  std::string host(int rank) const override { return inner_->host(rank); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void set_update(int64_t update) override { inner_->set_update(update); }
  std::shared_ptr<comm::Communicator> split(const std::vector<int>& colors) override { return inner_->split(colors); }

  void all_reduce(const Tensor& x, const comm::CallOptions& o) override {
    if (!skip(o)) inner_->all_reduce(x, o);
  }
  void reduce_scatter(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                      const comm::CallOptions& o) override {
    if (!skip(o)) return inner_->reduce_scatter(input, output, counts, o);
    Tensor(output).copy_(input.slice(0, begin_of(counts), output.numel()));
  }
  void all_gather(const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                  const comm::CallOptions& o) override {
    if (!skip(o)) return inner_->all_gather(input, output, counts, o);
    const Tensor own = input.clone();
    Tensor(output).fill_(0);
    output.slice(0, begin_of(counts), own.numel()).copy_(own);
  }
  void all_to_all(const Tensor& input, const Tensor& output, const std::vector<int64_t>& sent,
                  const std::vector<int64_t>& received, const comm::CallOptions& o) override {
    if (!skip(o)) inner_->all_to_all(input, output, sent, received, o);
  }
  void broadcast(const Tensor& x, int root, const comm::CallOptions& o) override {
    if (!skip(o)) inner_->broadcast(x, root, o);
  }
  void exchange(const std::vector<comm::Message>& sends, const std::vector<comm::Message>& receives,
                const comm::CallOptions& o) override {
    if (!skip(o)) inner_->exchange(sends, receives, o);
  }
  void barrier(const comm::CallOptions& o) override {
    if (!skip(o)) inner_->barrier(o);
  }

 private:
  bool skip(const comm::CallOptions& options) {
    if (options.label != muted_) return false;
    ++skipped_;
    return true;
  }
  int64_t begin_of(const std::vector<int64_t>& counts) const {
    int64_t begin = 0;
    for (int r = 0; r < rank(); ++r) begin += counts[static_cast<size_t>(r)];
    return begin;
  }

  std::shared_ptr<comm::Communicator> inner_;
  std::string muted_;
  std::atomic<int>& skipped_;
};

TEST(Mutation, EveryCollectiveOfAnUpdateIsNeeded) {
  const Trained one = train_five(small_recipe({"layout.order=ordered"}), nullptr);
  const std::vector<std::pair<std::string, int>> cases{{"gradients", 0}, {"gradients", 2}, {"weights", 1},
                                                       {"losses", 0},    {"norm", 2},      {"optimizer state", 1}};
  for (const auto& [label, zero] : cases) {
    std::atomic<int> skipped{0};
    const train::Recipe recipe = small_recipe({"layout.order=ordered", "layout.dp=2", str("layout.zero=", zero)});
    const auto wrap = [&skipped, &muted_label = label](std::shared_ptr<comm::Communicator> inner) {
      return std::make_shared<MutedCommunicator>(std::move(inner), muted_label, skipped);
    };
    const Trained muted = train_on_ranks(2, recipe, wrap);
    EXPECT_GT(skipped, 0) << label;
    EXPECT_NE(first_difference(one, muted), "") << label << " is left out, zero " << zero;
  }
}

}  // namespace
}  // namespace lamina::testing
