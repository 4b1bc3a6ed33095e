// Gradients that travel in bf16: the error bound against the terms of every rank, half the bytes, five updates, rules.
#include "lamina/comm/fake.h"
#include "parallel/first_update.h"
#include "parallel/muted_communicator.h"

namespace lamina::testing {
namespace {

constexpr double kRounding = 1.0 / 256;  // half a unit in the last place of bf16, relative

TEST(Bf16Gradients, AnAllReduceRoundsTermsOnceAndTheSumOnce) {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t count : {1, 7, 5000}) {
      const auto term = [&](int rank, int64_t i) {
        return bf16(philox_word({5, static_cast<uint64_t>(rank)}, static_cast<uint64_t>(i)) * 1e-9F - 1.0F);
      };
      comm::run_local_ranks(ranks, [&](comm::Communicator& c) {
        const Tensor x = Tensor::empty({count}, DType::bf16, Device::cpu(1));
        std::vector<float> sums(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
          x.data<bf16>()[i] = term(c.rank(), i);
          float& sum = sums[static_cast<size_t>(i)];
          for (int r = 0; r < ranks; ++r) sum += static_cast<float>(term(r, i));
          sum = static_cast<float>(bf16(sum));
        }
        const Tensor whole = x.clone();
        const int64_t first = count / 2;
        std::vector<int64_t> counts(static_cast<size_t>(ranks));
        counts[0] = first;
        counts[static_cast<size_t>(ranks) - 1] += count - first;
        const int64_t own = counts[static_cast<size_t>(c.rank())];
        const Tensor part = Tensor::empty({own}, DType::bf16, Device::cpu(1));
        for (const comm::Order order : {comm::Order::fast, comm::Order::ordered}) {
          const Tensor all = x.clone();
          c.all_reduce(all, {.label = "test", .order = order});
          EXPECT_EQ(all.to(DType::f32).to_vector<float>(), sums) << ranks << " ranks, " << count << " elements";
          c.reduce_scatter(whole, part, counts, {.label = "test", .order = order});
          const int64_t begin = c.rank() == 0 ? 0 : c.rank() + 1 == ranks ? first : 0;
          EXPECT_EQ(part.to(DType::f32).to_vector<float>(),
                    std::vector<float>(sums.begin() + begin, sums.begin() + begin + own));
        }
      });
    }
  }
}

/// Gradients of the rows of one data-parallel rank, with their weight in the whole update, on one device in f64.
std::map<std::string, std::vector<double>> terms_of_rank(const train::Recipe& recipe, int rank) {
  nn::Model model(recipe.architecture, Device::cpu(1), {.dtype = DType::f64, .seed = 3});
  Tape tape;
  watch_all(model, tape);
  for (int64_t pass = 0; pass < recipe.accumulation; ++pass) {
    const data::Batch batch = batch_of(recipe, pass);
    const auto targets = [](const std::vector<int64_t>& of) {
      return static_cast<double>(of.size()) - static_cast<double>(std::count(of.begin(), of.end(), kIgnoreIndex));
    };
    for (const train::RowRange& rows : train::micro_batches(recipe.layout, recipe.batch, rank)) {
      const auto part = [&](const std::vector<int64_t>& of) {
        return std::vector<int64_t>(of.begin() + rows.begin * batch.length, of.begin() + rows.end * batch.length);
      };
      const auto tensor = [&](const std::vector<int64_t>& of) {
        return Tensor::from(of, {rows.end - rows.begin, batch.length}, model.device());
      };
      const std::vector<int64_t> own = part(batch.targets);
      const double share = targets(own) / targets(batch.targets) / static_cast<double>(recipe.accumulation);
      const Tensor loss = model.loss(tensor(part(batch.ids)), tensor(own), {}, {.training = true}).total;
      tape.backward({loss}, {Tensor::full(loss.shape(), share, loss.dtype(), loss.device())});
    }
  }
  std::map<std::string, std::vector<double>> terms;
  for (const NamedTensor& parameter : train::distinct_parameters(model)) {
    terms[parameter.name] = tape.grad(parameter.tensor).to_vector<double>();
  }
  return terms;
}

TEST(Bf16Gradients, EveryGradientIsWithinTheErrorBound) {
  constexpr int kRanks = 3;
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"layout.zero=0"}, {"layout.zero=3"}, {"layout.zero=3", "layout.micro_batch=2"}}) {
    std::vector<std::string> changes{"architecture=gpt2-tiny", "layout.dp=3", "layout.reduce=bf16"};
    changes.insert(changes.end(), layout.begin(), layout.end());
    const train::Recipe recipe = small_recipe(changes);
    // With ZeRO-3 every pass is summed over ranks, and the sums are added in f64.
    const double passes = recipe.layout.zero == 3 ? 4 : 1;
    std::vector<std::map<std::string, std::vector<double>>> terms;
    for (int rank = 0; rank < kRanks; ++rank) terms.push_back(terms_of_rank(recipe, rank));
    comm::run_local_ranks(kRanks, [&](comm::Communicator& c) {
      const First got = on_ranks(recipe, c);
      double largest = 0;
      for (const auto& [name, values] : got.gradients) {
        double scale = 0;  // terms of single passes are not bounded by their sum: compare with the largest
        for (const auto& term : terms) {
          for (const double value : term.at(name)) scale = std::max(scale, std::abs(value));
        }
        for (size_t i = 0; i < values.size(); ++i) {
          double sum = 0;
          double sizes = 0;
          for (const auto& term : terms) {
            sum += term.at(name)[i];
            sizes += std::abs(term.at(name)[i]);
          }
          const double error = std::abs(values[i] - sum);
          const double bound =
              passes == 1 ? kRounding * (sizes + std::abs(sum)) * 1.01 : kRounding * passes * 2 * scale;
          EXPECT_LE(error, bound + 1e-12) << layout[0] << ": " << name << "[" << i << "]";
          largest = std::max(largest, error / (sizes + 1e-30));
        }
      }
      EXPECT_GT(largest, kRounding / 8) << layout[0] << ": nothing was rounded to bf16";
    });
  }
}

TEST(Bf16Gradients, HalvesTheBytes) {
  const auto bytes = [](const char* reduce, int zero, int cp) {
    const train::Recipe recipe = small_recipe(
        {str("layout.dp=", 4 / cp), str("layout.cp=", cp), str("layout.zero=", zero), str("layout.reduce=", reduce)});
    comm::FakeWorld world(4);
    for (int rank = 0; rank < 4; ++rank) {
      train::Learner learner(recipe, Device::meta(), world.communicator(rank));
      learner.rehearse_update();
    }
    world.check();
    int64_t sent = 0;
    for (int rank = 0; rank < 4; ++rank) sent += world.traffic(rank).at("gradients").bytes;
    return sent;
  };
  for (const int zero : {0, 1, 2, 3}) {
    for (const int cp : {1, 2}) EXPECT_EQ(2 * bytes("bf16", zero, cp), bytes("f32", zero, cp)) << "zero " << zero;
  }
}

TEST(Bf16Gradients, FiveUpdatesStayCloseToF32AndRanksAgree) {
  const std::vector<std::string> changes{"optimizer.kind=sgd", "optimizer.lr=0.1", "dropout.residual=0.1"};
  const Trained one = train_five(small_recipe(changes), nullptr);
  Trained first;
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{"layout.dp=4"},
                                             {"layout.dp=4", "layout.zero=1"},
                                             {"layout.dp=4", "layout.zero=2"},
                                             {"layout.dp=4", "layout.zero=3"},
                                             {"layout.dp=2", "layout.tp=2", "layout.zero=2"},
                                             {"layout.dp=2", "layout.pp=2", "layout.micro_batch=2"},
                                             {"layout.cp=2"}}) {
    std::vector<std::string> more = changes;
    more.insert(more.end(), layout.begin(), layout.end());
    more.emplace_back("layout.reduce=bf16");
    const train::Recipe recipe = small_recipe(more);
    const Trained many = train_on_ranks(static_cast<int>(recipe.layout.ranks()), recipe);
    const std::string what = layout[0] + " " + layout.back();
    // Clipped to a norm of 0.5 and with a rate of 0.1, five updates move weights by at most 0.25.
    EXPECT_LE(largest_difference(one, many), 0.25 * 3 * kRounding) << what;
    EXPECT_GT(largest_difference(one, many), 1e-7) << what << ": nothing was rounded";
    EXPECT_NEAR(one.norms[4], many.norms[4], 3 * kRounding * one.norms[4]) << what;
    if (layout.size() == 1 && layout[0] == "layout.dp=4") first = many;
    if (layout == std::vector<std::string>{"layout.dp=4", "layout.zero=1"} ||
        layout == std::vector<std::string>{"layout.dp=4", "layout.zero=2"}) {
      EXPECT_EQ(first_difference(first, many), "") << what;
    }
  }
}

TEST(Bf16Gradients, TheExchangeIsNeeded) {
  const train::Recipe recipe = small_recipe({"layout.dp=2", "layout.reduce=bf16", "layout.zero=2"});
  const Trained whole = train_on_ranks(2, recipe);
  std::atomic<int> skipped{0};
  const Trained muted = train_on_ranks(2, recipe, [&](std::shared_ptr<comm::Communicator> inner) {
    return std::make_shared<MutedCommunicator>(std::move(inner), "gradients", skipped);
  });
  EXPECT_GT(skipped, 0);
  EXPECT_GT(largest_difference(whole, muted), 1e-3);
}

TEST(Bf16Gradients, ARuleRefusesOrderedSums) {
  try {
    small_recipe({"layout.reduce=bf16", "layout.order=ordered"});
    FAIL() << "expected a SpecError";
  } catch (const arch::SpecError& error) {
    EXPECT_NE(std::string(error.what()).find("bf16 with order ordered"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lamina::testing
