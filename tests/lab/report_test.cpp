// Reports from the made-up results of golden/lab. tools/check-report tests the page in a browser.
#include "lamina/lab/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lamina/arch/json.h"
#include "lamina/arch/presets.h"
#include "lamina/base/files.h"
#include "lamina/lab/report/chart_data.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/report/effects.h"
#include "lamina/lab/report/escape.h"
#include "lamina/lab/report/series.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lamina::lab {
namespace {

using Json = nlohmann::ordered_json;
using testing::error_of;

std::string sample() { return read_text(std::string(LAMINA_GOLDEN_DIR) + "/lab/sample_results.json"); }

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

/// The part of `text` between two markers; empty if one is missing.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  const size_t to = text.find(end, from + begin.size());
  return to == std::string::npos ? "" : text.substr(from + begin.size(), to - from - begin.size());
}

TEST(Report, HoldsEverySectionOfTheStudy) {
  const std::string page = report_html(sample(), "sample");
  for (const char* id :
       {"effects", "claims", "results", "curves", "cost", "extrapolation", "passkey", "notes", "blocks", "repeat"}) {
    EXPECT_EQ(count(page, str("<section id=\"", id, "\"")), 1U) << id;
  }
  EXPECT_EQ(count(page, "class=\"verdict "), 4U);
  EXPECT_EQ(count(page, "id=\"answer\""), 1U);
  EXPECT_EQ(count(page, "<figure data-chart="), 5U);
  EXPECT_EQ(count(page, "data-save=\"png\""), 5U);
  EXPECT_EQ(count(page, "href=\"data:text/csv;charset=utf-8;base64,"), 5U);
  EXPECT_EQ(count(between(page, "id=\"variants\"", "</table>"), "<tr"), 7U);
  EXPECT_NE(page.find("p &lt; 0.001"), std::string::npos);
  EXPECT_NE(page.find("cannot run: decoding with a cache"), std::string::npos);
  EXPECT_NE(page.find("matched: d_ff 1536 → 1568 (+0.21 % parameters)"), std::string::npos);
  EXPECT_NE(page.find("lamina compare positions.json --out positions"), std::string::npos);
  EXPECT_NE(page.find("learned positions end at 256"), std::string::npos);
}

// The sample has a variant called </script><b>…, a switch with an <img onerror> and a description with </pre><script>.
TEST(Report, TextsOfTheResultsStayTexts) {
  const std::string page = report_html(sample(), "sample");
  EXPECT_EQ(count(page, "<script"), report_is_interactive() ? 4U : 2U);
  EXPECT_EQ(count(page, "<script"), count(page, "</script"));
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(page.find("<img src=x"), std::string::npos);
  EXPECT_EQ(count(page, "<pre"), count(page, "</pre>"));
}

// A drawing that would run a script is an image's bytes, which no browser runs.
TEST(Report, DiagramsAreImages) {
  Json json = Json::parse(sample());
  json["variants"][0]["diagram_svg"] = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
  const std::string page = report_html(json.dump(), "sample");
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find(report::data_address("image/svg+xml", json["variants"][0]["diagram_svg"])), std::string::npos);
}

// A drawing made here from the architecture replaces the file's, in parts that a phone shows one below the other.
TEST(Report, ArchitecturesAreDrawnAnew) {
  const Json json = {{"schema", 1},
                     {"name", "n"},
                     {"metric", "loss"},
                     {"variants",
                      {{{"name", "a"},
                        {"architecture", Json::parse(arch::write_spec(arch::load_preset("gpt2-tiny")))},
                        {"diagram_svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>"}}}}};
  const std::string page = report_html(json.dump(), "x");
  EXPECT_EQ(count(page, "<img alt=\"Block diagram: a, model\""), 1U);
  EXPECT_EQ(count(page, "<img alt=\"Block diagram: a, block A\""), 1U);
  EXPECT_EQ(count(page, "<img "), 2U);
}

TEST(Report, SwitchesAreShortenedAndResetsAreLeftOut) {
  const std::string page = report_html(
      R"({"schema":1,"name":"n","metric":"loss","variants":[
        {"name":"a","switches":["layers[*].pattern[*].ffn.kind=moe","layers[*].pattern[*].norm=null"]},
        {"name":"b","switches":["position.scaling=null"]}]})",
      "x");
  EXPECT_NE(page.find("<code title=\"layers[*].pattern[*].ffn.kind=moe\">ffn.<wbr>kind=<wbr>moe</code>"),
            std::string::npos);
  EXPECT_EQ(page.find("norm=null"), std::string::npos);
  EXPECT_NE(page.find(">position.<wbr>scaling unset</code>"), std::string::npos);
}

TEST(Report, AStepOfALadderShowsItsOwnSwitches) {
  const std::string page = report_html(
      R"({"schema":1,"name":"n","mode":"ladder","metric":"loss","variants":[
        {"name":"a","switches":["x=1"]},{"name":"b","switches":["x=1","y=2"]}]})",
      "x");
  EXPECT_EQ(count(page, ">+ x=<wbr>1</code>"), 1U);
  EXPECT_EQ(count(page, ">+ y=<wbr>2</code>"), 1U);
}

TEST(Report, FewColumnsAreShownAtFirst) {
  const std::string results = read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/studies/ladder/results.json");
  const std::string head = between(report_html(results, "ladder"), "id=\"variants\"", "</thead>");
  for (const char* title :
       {"Best loss", "Perplexity", "Training tokens/s", "Peak memory", "Parameters", "Final loss"}) {
    const size_t at = head.find(str(">", title, "<"));
    ASSERT_NE(at, std::string::npos) << title;
    const size_t begin = head.rfind("<th ", at);
    EXPECT_EQ(head.substr(begin, at - begin).find("class=\"more\""), std::string::npos) << title;
  }
  // seven visible columns, including the variant's name
  EXPECT_EQ(count(head, "<th ") - count(head, "class=\"more\""), 7U);
  EXPECT_GT(count(head, "class=\"more\""), 5U);
}

TEST(Report, ChangesThatOnlyUnsetAValueAreNotShown) {
  const std::string page = report_html(
      R"({"schema":1,"name":"n","metric":"loss","variants":[{"name":"a","switches":["norm.kind=rms",
        "layers[*].pattern[*].norm=null"]}]})",
      "x");
  EXPECT_NE(page.find("norm.kind=rms"), std::string::npos);
  EXPECT_EQ(page.find("norm=null"), std::string::npos);
}

TEST(Report, ColumnsSayWhichAreShownByDefault) {
  std::string shown;
  for (const report::Column& column : report::columns_of(report::read_study(sample(), "sample"))) {
    if (column.shown) shown += column.key + " ";
  }
  EXPECT_EQ(shown, "best_loss final_loss tokens_per_second peak_memory_bytes parameters ");
}

TEST(Report, WhatTheScriptReadsIsWhatTheResultsSay) {
  const std::string text = report::script_json(report::chart_data(report::read_study(sample(), "sample")));
  EXPECT_EQ(text.find('<'), std::string::npos);
  const Json data = Json::parse(text);
  EXPECT_EQ(data["labels"].size(), 7U);  // six variants and a stretched checkpoint
  EXPECT_EQ(data["labels"][4], "</script><b>bold</b> & \"quotes\"");
  EXPECT_EQ(data["validation"].size(), 5U);
  EXPECT_EQ(data["validation"][3]["points"].size(), 10U);  // two of its three seeds go to the end
  EXPECT_EQ(data["stretch"]["passkey"].size(), 75U);
  EXPECT_TRUE(data["stretch"]["rows"][0]["perplexity"][1].is_null());
}

// A results file of an older version has no margin: its verdicts are computed again, by the rules of today.
TEST(Report, OlderVerdictsAreComputedAgain) {
  for (const char* name :
       {"attention-kinds", "families", "glu", "precision", "stability", "stretch", "tasks", "warm-up"}) {
    const std::string file = std::string(LAMINA_SOURCE_DIR) + "/docs/studies/" + name + "/results.json";
    const report::Study study = report::read_study(read_text(file), file);
    const report::Answer answer = report::answer_of(study);
    EXPECT_FALSE(answer.text.empty()) << name;
    if (study.stretch) continue;
    EXPECT_TRUE(study.judged_again) << name;
    EXPECT_NE(answer.text.find("95 % confidence interval"), std::string::npos) << answer.text;
    for (const report::Effect& effect : report::effects_of(study)) {
      ASSERT_TRUE(effect.low && effect.margin) << name;
      const bool within = *effect.low > -*effect.margin && *effect.high < *effect.margin;
      if (effect.mark == "no difference") {
        EXPECT_LT(std::abs(effect.difference), *effect.margin) << effect.label;
      } else if (effect.mark == "cannot tell") {
        EXPECT_FALSE(within && study.variants.size() == 2) << effect.label;
      } else {
        EXPECT_GT(*effect.low * *effect.high, 0) << effect.label;
      }
    }
  }
}

TEST(Report, ShowsTheBudgetAndSelectedSeeds) {
  const auto results = [](const std::string& study) {
    return read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/studies/" + study + "/results.json");
  };
  const std::string fair = report_html(results("fair"), "fair");
  EXPECT_NE(fair.find("1,200 updates, 19,660,800 tokens per run"), std::string::npos);
  EXPECT_NE(fair.find("each variant, on other seeds"), std::string::npos);
  const std::string headline = report_markdown(results("headline"), "headline");
  EXPECT_NE(headline.find("Steps to target: both have it in 3 of 5 seeds | **cannot tell**"), std::string::npos)
      << headline.substr(0, 3000);
  // One trained model has no interval.
  const std::string stretch = report_markdown(results("stretch"), "stretch");
  EXPECT_EQ(stretch.find("**holds**"), std::string::npos);
  EXPECT_EQ(stretch.find("**does not hold**"), std::string::npos);
}

TEST(Report, MarkdownTableHasARowForEachVariantAndNoHtmlOfTheirs) {
  const std::string text = report_markdown(sample(), "sample");
  const std::string table = between(text, "## Results", "## Learning curves");
  EXPECT_EQ(count(table, "\n| "), 7U);
  EXPECT_NE(table.find("| RoPE<br>matched: d\\_ff"), std::string::npos);
  EXPECT_EQ(text.find("<b>"), std::string::npos);
  EXPECT_NE(text.find("![Passkey retrieval](passkey.svg)"), std::string::npos);
  // Every row has as many cells as the head.
  std::vector<size_t> bars;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|")) bars.push_back(count(line, "|") - count(line, "\\|"));
  }
  for (const size_t each : bars) EXPECT_EQ(each, bars.front());
}

TEST(Report, CsvKeepsEveryDigitAndQuotes) {
  const std::string text = report_csv(sample(), "sample");
  const Json variant = Json::parse(sample())["variants"][1];
  std::istringstream lines(text);
  std::string head;
  std::getline(lines, head);
  EXPECT_TRUE(head.starts_with("variant,label,base,seeds,switches,cannot,best_loss,best_loss_spread,"));
  EXPECT_NE(
      text.find(str("\r\nrope,RoPE,no,3,position.kind=rope,,", variant["summary"]["best_loss"]["mean"].dump(), ",")),
      std::string::npos);
  EXPECT_NE(text.find("\"</script><b>bold</b> & \"\"quotes\"\"\""), std::string::npos);
  EXPECT_EQ(count(runs_csv(sample(), "sample"), "\r\n"), 1U + 5 * 3);
}

// Mean ± standard deviation by hand, over the runs that have the number.
TEST(Report, BandsAreMeanAndSpreadOfTheSeedsThatHaveIt) {
  const char* text = R"({"schema":1,"name":"n","metric":"loss","variants":[{"name":"a","runs":[
    {"seed":1,"evaluations":{"step":[10,20],"loss":[2.0,1.0]}},
    {"seed":2,"evaluations":{"step":[10,20],"loss":[4.0,null]}}]},{"name":"b","runs":[]}]})";
  const report::Study study = report::read_study(text, "x");
  const std::vector<report::Band> bands = report::bands_of(study, report::Losses::validation);
  ASSERT_EQ(bands.size(), 1U);
  ASSERT_EQ(bands[0].points.size(), 2U);
  EXPECT_DOUBLE_EQ(bands[0].points[0].mean, 3);
  EXPECT_DOUBLE_EQ(bands[0].points[0].high, 3 + std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(bands[0].points[1].mean, 1);
  EXPECT_DOUBLE_EQ(bands[0].points[1].low, 1);
}

TEST(Report, LongCurvesKeepTheirEnd) {
  Json run = {{"seed", 1}};
  for (int i = 1; i <= 1001; ++i) {
    run["curve"]["step"].push_back(i);
    run["curve"]["loss"].push_back(i);
  }
  const Json json = {
      {"schema", 1}, {"name", "n"}, {"metric", "loss"}, {"variants", {{{"name", "a"}, {"runs", Json::array({run})}}}}};
  const std::vector<report::Band> bands =
      report::bands_of(report::read_study(json.dump(), "x"), report::Losses::training);
  EXPECT_LE(bands[0].points.size(), 400U);
  EXPECT_EQ(bands[0].points.back().x, 1001);
  EXPECT_DOUBLE_EQ(bands[0].points.back().mean, 1000);  // the mean of 999, 1000 and 1001
  EXPECT_DOUBLE_EQ(bands[0].points.front().mean, 1.5);  // the mean of the remaining points, 1 and 2
}

// Ticks between two numbers that differ in their last bit would never end.
TEST(Report, NumbersThatDifferByRoundingAreOneCostAndOneTick) {
  Json json = {{"schema", 1}, {"name", "n"}, {"metric", "loss"}, {"variants", Json::array()}};
  for (const double flops : {2.1e7, std::nextafter(2.1e7, 3e7)}) {
    const Json run = {{"seed", 1}, {"best_loss", std::nextafter(2.0, flops)}, {"tokens_per_second", flops / 1e3}};
    json["variants"].push_back(
        {{"name", str(json["variants"].size())}, {"flops_per_token", flops}, {"runs", Json::array({run})}});
  }
  json["variants"][0]["peak_memory_bytes"] = 1000;  // differs by half a per cent
  json["variants"][1]["peak_memory_bytes"] = 1005;
  json["variants"][0]["parameters"] = 100;
  json["variants"][1]["parameters"] = 200;
  const std::vector<report::CostChart> charts = report::cost_charts(report::read_study(json.dump(), "x"));
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].key, "parameters");
  EXPECT_NE(report_html(json.dump(), "x").find("<svg"), std::string::npos);
}

// Curves that lie on one another alternate, and the target's name stands to the right of the frame.
TEST(Report, PicturesShowCoincidingCurvesAndTheTarget) {
  Json json = {{"schema", 1}, {"name", "n"}, {"metric", "loss"}, {"target", 1.5}, {"variants", Json::array()}};
  for (const char* name : {"a", "b"}) {
    const Json run = {{"seed", 1}, {"evaluations", {{"step", {10, 20}}, {"loss", {2.0, 1.0}}}}};
    json["variants"].push_back({{"name", name}, {"runs", Json::array({run})}});
  }
  const testing::TemporaryFolder folder;
  write_report(json.dump(), "x", folder.path());
  const std::string svg = read_text(folder / "curves.svg");
  EXPECT_EQ(count(svg, "stroke-dasharray=\"9 9\""), 1U);
  EXPECT_EQ(count(svg, "<circle"), 2U + 2);  // the curves take turns; two in the legend
  const size_t label = svg.find(">target<");
  ASSERT_NE(label, std::string::npos);
  const std::string frame = between(svg, "<svg x=\"", "\" y=");
  const std::string width = between(svg.substr(svg.find("<svg x=\"")), "width=\"", "\"");
  const std::string x = between(svg.substr(svg.rfind("<text", label)), "x=\"", "\"");
  EXPECT_GE(std::stod(x), std::stod(frame) + std::stod(width));
}

TEST(Report, TheFirstCostTellsTheMostVariantsApart) {
  Json json = {{"schema", 1}, {"name", "n"}, {"metric", "loss"}, {"variants", Json::array()}};
  const std::vector<std::pair<double, double>> costs{{100, 50}, {100, 60}, {80, 70}};  // parameters, tokens/s
  for (const auto& [parameters, rate] : costs) {
    const Json run = {{"seed", 1}, {"best_loss", 2.0}, {"tokens_per_second", rate}};
    json["variants"].push_back(
        {{"name", str(json["variants"].size())}, {"parameters", parameters}, {"runs", Json::array({run})}});
  }
  const std::vector<report::CostChart> charts = report::cost_charts(report::read_study(json.dump(), "x"));
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].key, "tokens_per_second");
  EXPECT_EQ(charts[1].key, "parameters");
}

TEST(Report, AStudyOfNothingIsStillAPage) {
  const std::string page = report_html(R"({"schema":1,"name":"empty","metric":"accuracy","variants":[]})", "x");
  EXPECT_NE(page.find("accuracy, higher is better"), std::string::npos);
  EXPECT_EQ(count(page, "<figure"), 0U);
  EXPECT_EQ(report_text(R"({"schema":1,"name":"empty","metric":"loss","variants":[]})", "x"), "variant\n\n");
}

TEST(Report, TextOfAStretchStudyHasATablePerReading) {
  const std::string text = report_text(
      R"({"schema":1,"name":"n","metric":"loss","variants":[{"name":"a","label":"A"}],"stretch":{"trained_length":8,
        "lengths":[8,16],"rows":[{"variant":"a","reading":"non-overlapping","perplexity":[2,null],"cannot":"ends"},
        {"variant":"a","reading":"sliding","perplexity":[1.5,12345]}],"passkey":[
        {"variant":"a","length":8,"depths":[0,1],"accuracy":[1,0.5]},
        {"variant":"a","length":16,"depths":[0,1],"accuracy":[null,0.25]}]}})",
      "x");
  EXPECT_NE(text.find("A                                  2.000         -  ends\n"), std::string::npos) << text;
  EXPECT_NE(text.find("A                                  1.500  1.23e+04\n"), std::string::npos) << text;
  EXPECT_NE(text.find("A                                     75         -\n"), std::string::npos) << text;
}

TEST(Report, AnIncompleteStudySaysSo) {
  const std::string text = R"({"schema":1,"name":"n","metric":"loss","complete":false,"variants":[]})";
  EXPECT_NE(report_html(text, "x").find("not complete"), std::string::npos);
  EXPECT_NE(report_markdown(text, "x").find("not complete"), std::string::npos);
}

TEST(Report, WrongFilesAreNamedWithTheirPlace) {
  const auto error = [](const std::string& text) { return error_of([&] { report_html(text, "r.json"); }); };
  EXPECT_NE(error("{").find("r.json: line 1, column 2: not JSON"), std::string::npos);
  EXPECT_NE(error("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(error("{}").find("r.json has no schema"), std::string::npos) << error("{}");
  EXPECT_NE(error(R"({"schema":2})").find("schema is 2; expected 1"), std::string::npos);
  const std::string begin = R"({"schema":1,"name":"n","metric":"loss","variants":[{"name":"a","runs":[{"seed":1,)";
  EXPECT_NE(error(begin + R"("curve":{"step":[1,2],"loss":[1]}}]}]})").find("variants[0].runs[0].curve.loss"),
            std::string::npos);
  EXPECT_NE(error(begin + R"("curve":{"step":["x"],"loss":[1]}}]}]})").find("step[0] is \"x\"; expected a number"),
            std::string::npos);
  const std::string stretch = R"({"schema":1,"name":"n","metric":"loss","variants":[],"stretch":{"trained_length":)";
  EXPECT_NE(error(stretch + R"(0,"lengths":[]}})").find("trained_length is 0; expected a number from 1"),
            std::string::npos);
  EXPECT_NE(error(stretch + R"(8,"lengths":[8],"passkey":[{"variant":"a","length":8,"depths":[0],"accuracy":[2]}]}})")
                .find("accuracy[0] is 2"),
            std::string::npos);
  EXPECT_NE(error(R"({"schema":1,"name":"n","metric":"loss","variants":[{"name":"a"},{"name":"a"}]})")
                .find("two variants are named a"),
            std::string::npos);
}

// A description is shown as it is, whatever it holds.
TEST(Report, AnyDescriptionIsAccepted) {
  for (const char* description : {"[1]", "\"x\"", "{\"recipe\": [2]}", "{\"recipe\": {\"batch\": -1}}", "null"}) {
    const std::string file =
        str(R"({"schema":1,"name":"n","metric":"loss","variants":[{"name":"a"}],"description":)", description, "}");
    EXPECT_EQ(error_of([&] { report_html(file, "x"); }), "") << description;
  }
}

TEST(Report, WritesAllFilesIntoAFolderItMakes) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> paths = write_report(sample(), "sample", folder / "a/b");
  EXPECT_EQ(paths.size(), 14U);
  for (const std::string& path : paths) EXPECT_FALSE(read_text(path).empty()) << path;
  EXPECT_TRUE(paths.front().ends_with("report.html"));
}

TEST(ReportTable, NumbersAsPeopleReadThem) {
  using report::Style;
  EXPECT_EQ(report::written(1.48621, Style::loss), "1.4862");
  EXPECT_EQ(report::written(0.9834, Style::percent), "98.3 %");
  EXPECT_EQ(report::written(10770000, Style::count), "10,770,000");
  EXPECT_EQ(report::written(412000000, Style::bytes), "412 MB");
  EXPECT_EQ(report::written(21000000, Style::work), "21 M");
  EXPECT_EQ(report::written(130, Style::seconds), "2.2 min");
  EXPECT_EQ(report::written_difference(-0.031, Style::loss), "−0.0310");
  EXPECT_EQ(report::written_difference(0.0021, Style::loss), "+0.0021");
  EXPECT_EQ(report::written_difference(-0.00002, Style::loss), "0.0000");
  EXPECT_EQ(report::written_p(0.0002), "p < 0.001");
  EXPECT_EQ(report::written_p(0.0213), "p = 0.021");
}

TEST(ReportEscape, EveryPlaceHasItsOwn) {
  EXPECT_EQ(report::html("<a href=\"x\">'&'\x01"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39; ");
  EXPECT_EQ(report::script_json("\"</script>\""), "\"\\u003c/script\\u003e\"");
  EXPECT_EQ(report::markdown("a|b_c<br>"), "a\\|b\\_c\\<br\\>");
  EXPECT_EQ(report::csv("a,\"b\""), "\"a,\"\"b\"\"\"");
  EXPECT_EQ(report::csv("plain"), "plain");
  // RFC 4648, section 10
  EXPECT_EQ(report::data_address("t", "f"), "data:t;base64,Zg==");
  EXPECT_EQ(report::data_address("t", "fo"), "data:t;base64,Zm8=");
  EXPECT_EQ(report::data_address("t", "foobar"), "data:t;base64,Zm9vYmFy");
}

}  // namespace
}  // namespace lamina::lab
