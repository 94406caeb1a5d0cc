#include "frontend/onnx/dim_expression.h"

#include <algorithm>
#include <cctype>

namespace piper::frontend {

using ir::Dim;

namespace {

constexpr int kMaxDepth = 100;

// sum: product (('+' | '-') product)*     product: unary (('*' | '/' | '//' | '%') unary)*
// unary: '-' unary | number | name | name '(' sum (',' sum)* ')' | '(' sum ')'
class Parser {
 public:
  Parser(const std::string& text,
         const std::function<std::optional<Dim>(const std::string&)>& size_of)
      : text_(text), size_of_(size_of) {}

  DimText run() {
    const std::optional<Dim> value = sum();
    skip_spaces();
    if (at_ != text_.size()) result_.understood = false;
    if (result_.understood && result_.unbound.empty()) result_.value = value;
    return std::move(result_);
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') at_++;
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  std::optional<Dim> fail() {
    result_.understood = false;
    return std::nullopt;
  }

  std::optional<Dim> sum() {
    std::optional<Dim> left = product();
    for (;;) {
      const bool plus = take("+");
      if (!plus && !take("-")) return left;
      const std::optional<Dim> right = product();
      if (!left || !right) return std::nullopt;
      left = combine(plus ? '+' : '-', *left, *right);
    }
  }

  std::optional<Dim> product() {
    std::optional<Dim> left = unary();
    for (;;) {
      char op = 0;
      if (take("**")) return fail();
      if (take("//") || take("/")) {
        op = '/';
      } else if (take("*")) {
        op = '*';
      } else if (take("%")) {
        op = '%';
      } else {
        return left;
      }
      const std::optional<Dim> right = unary();
      if (!left || !right) return std::nullopt;
      left = combine(op, *left, *right);
      if (!left) return fail();
    }
  }

  std::optional<Dim> unary() {
    if (depth_ == kMaxDepth) return fail();
    depth_++;
    const std::optional<Dim> value = operand();
    depth_--;
    return value;
  }

  std::optional<Dim> operand() {
    if (take("-")) {
      const std::optional<Dim> value = unary();
      return value ? combine('-', Dim(0), *value) : std::nullopt;
    }
    if (take("(")) {
      const std::optional<Dim> value = sum();
      return take(")") ? value : fail();
    }
    skip_spaces();
    std::string word;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '_' || text_[at_] == '.'))
      word += text_[at_++];
    if (word.empty() || word.size() > 200) return fail();
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return number(word);
    if (take("(")) return call(word);
    const std::optional<Dim> size = size_of_(word);
    auto& unbound = result_.unbound;
    if (!size && std::find(unbound.begin(), unbound.end(), word) == unbound.end())
      unbound.push_back(word);
    return size;
  }

  std::optional<Dim> number(const std::string& word) {
    if (word.size() > 18) return fail();
    int64_t value = 0;
    for (unsigned char c : word) {
      if (!std::isdigit(c)) return fail();
      value = value * 10 + (c - '0');
    }
    return Dim(value);
  }

  // floor(a), Max(a, b), Min(a, b)
  std::optional<Dim> call(const std::string& name) {
    std::vector<std::optional<Dim>> arguments;
    do {
      arguments.push_back(sum());
    } while (take(","));
    if (!take(")")) return fail();
    const bool max = name == "Max" || name == "max", min = name == "Min" || name == "min";
    if (!max && !min && !(name == "floor" && arguments.size() == 1)) return fail();
    std::optional<Dim> best;
    for (const std::optional<Dim>& argument : arguments) {
      if (!argument) return std::nullopt;
      if (arguments.size() > 1 && !argument->is_static()) return fail();
      if (!best || (max ? argument->constant > best->constant : argument->constant < best->constant))
        best = argument;
    }
    return best;
  }

  // Nothing when the result is not linear in the batch, or too large.
  static std::optional<Dim> combine(char op, Dim a, Dim b) {
    Dim result(0);
    bool bad = false;
    switch (op) {
      case '+':
        bad = __builtin_add_overflow(a.constant, b.constant, &result.constant) ||
              __builtin_add_overflow(a.batch, b.batch, &result.batch);
        break;
      case '-':
        bad = __builtin_sub_overflow(a.constant, b.constant, &result.constant) ||
              __builtin_sub_overflow(a.batch, b.batch, &result.batch);
        break;
      case '*':
        if (!a.is_static()) std::swap(a, b);
        bad = !a.is_static() || __builtin_mul_overflow(a.constant, b.constant, &result.constant) ||
              __builtin_mul_overflow(a.constant, b.batch, &result.batch);
        break;
      default:
        // A batch that divides evenly does so for every size only when its factor does.
        bad = !b.is_static() || b.constant <= 0 || a.constant < 0 ||
              (!a.is_static() && (op == '%' || a.batch % b.constant != 0 ||
                                  a.constant % b.constant != 0));
        if (!bad && op == '/') result = Dim(a.constant / b.constant, a.batch / b.constant);
        if (!bad && op == '%') result = Dim(a.constant % b.constant);
        break;
    }
    return bad ? std::nullopt : std::optional<Dim>(result);
  }

  const std::string& text_;
  const std::function<std::optional<Dim>(const std::string&)>& size_of_;
  size_t at_ = 0;
  int depth_ = 0;
  DimText result_;
};

}  // namespace

DimText evaluate_dim(const std::string& text,
                     const std::function<std::optional<Dim>(const std::string&)>& size_of) {
  if (const std::optional<Dim> whole = size_of(text)) return {whole, {}, true};
  return Parser(text, size_of).run();
}

}  // namespace piper::frontend
