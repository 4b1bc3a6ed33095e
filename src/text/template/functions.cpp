// Global functions: those of Jinja, and those that transformers adds.
#include <ctime>

#include "lamina/base/error.h"
#include "lamina/text/template/arguments.h"
#include "lamina/text/template/interpreter.h"

namespace lamina::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in jinja2's sandbox
constexpr size_t kMaxTimeFormat = 1000;

Value range_function(Interpreter& run, const Arguments& given) {
  const BoundArguments arguments("range", given, {"start", "stop", "step"});
  const bool one = !arguments.has(1);
  const int64_t start = one ? 0 : arguments.integer(0);
  const int64_t stop = one ? arguments.integer(0) : arguments.integer(1);
  const int64_t step = arguments.integer_or(2, 1);
  if (step == 0) throw Failure("range: step must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      throw Failure(str("range: has more than ", kMaxRange, " elements"));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  run.charge(items.size() * sizeof(Value));
  return Value::sequence(std::move(items), SequenceKind::range);
}

/// The entries for dict(…) and namespace(…): those of a dict argument, then the keyword arguments.
std::vector<std::pair<Value, Value>> entries_of(Interpreter& run, const char* function, const Arguments& given) {
  std::vector<std::pair<Value, Value>> entries;
  if (given.positional.size() > 1) throw Failure(str(function, ": takes at most one argument without a name"));
  for (const Value& value : given.positional) {
    run.charge(value.size());
    if (value.is_dict()) {
      entries = value.entries().entries;
      continue;
    }
    for (const Value& pair : run.iterate(value)) {
      std::vector<Value> two = run.iterate(pair);
      if (two.size() != 2) throw Failure(str(function, ": expected pairs of key and value"));
      entries.emplace_back(std::move(two[0]), std::move(two[1]));
    }
  }
  for (const auto& [name, value] : given.named) entries.emplace_back(name, value);
  return entries;
}

Value dict_function(Interpreter& run, const Arguments& given) { return Value::dict(entries_of(run, "dict", given)); }

Value namespace_function(Interpreter& run, const Arguments& given) {
  Namespace* members = run.make_namespace();
  for (const auto& [key, value] : entries_of(run, "namespace", given))
    members->members.insert_or_assign(to_text(key), value);
  return members;
}

Value raise_exception(Interpreter& /*run*/, const Arguments& given) {
  throw Raised(to_text(BoundArguments("raise_exception", given, {"message"}).value(0)));
}

Value strftime_now(Interpreter& run, const Arguments& given) {
  const BoundArguments arguments("strftime_now", given, {"format"});
  const std::string& format = arguments.text(0);
  if (format.size() > kMaxTimeFormat) throw Failure(str("strftime_now: the format has ", format.size(), " bytes"));
  std::string out(format.size() * 64 + 64, '\0');
  const std::tm now = run.now();
  // The space at the start distinguishes an empty result from a buffer that is too small.
  out.resize(std::strftime(out.data(), out.size(), (" " + format).c_str(), &now));
  if (out.empty()) throw Failure("strftime_now: the result is too long");
  return run.text(out.substr(1));
}

using Function = Value (*)(Interpreter&, const Arguments&);

const std::unordered_map<std::string_view, Function>& functions() {
  static const std::unordered_map<std::string_view, Function> table = {
      {"range", range_function},         {"dict", dict_function},
      {"namespace", namespace_function}, {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  return table;
}

}  // namespace

Value global_function(const std::string& name) {
  const auto found = functions().find(name);
  if (found == functions().end()) {
    if (name == "lipsum" || name == "cycler" || name == "joiner") {
      throw Failure(str("the function '", name, "' is not supported"));
    }
    return Value::undefined(str("'", name, "' is undefined"));
  }
  auto callable = std::make_shared<Callable>();
  callable->name = name;
  callable->call = found->second;
  return std::shared_ptr<const Callable>(std::move(callable));
}

}  // namespace lamina::text::jinja
