#include "ops/window_import.h"

#include <algorithm>

namespace piper::ops {

using support::user_error;

Expected<std::vector<int64_t>> spatial_dims(const TensorType& x) {
  if (x.shape.size() < 3 || x.shape.size() > 5) {
    return user_error("it works on [N, C] and one to three spatial dims, its input is " + ir::to_string(x));
  }
  std::vector<int64_t> dims;
  for (size_t i = 1; i < x.shape.size(); i++) {
    if (!x.shape[i].is_static()) {
      return user_error("its input is " + ir::to_string(x) + ": only the first dim may depend on the batch size");
    }
    if (i > 1) dims.push_back(x.shape[i].constant);
  }
  return dims;
}

namespace {

// The attribute, or `otherwise` for each spatial dim.
Expected<std::vector<int64_t>> per_dim(const Attrs& attrs, const std::string& name, size_t count, int64_t otherwise,
                                       int64_t least) {
  std::vector<int64_t> values = attrs.ints(name);
  if (values.empty()) return std::vector<int64_t>(count, otherwise);
  if (values.size() != count) {
    return user_error("`" + name + "` has " + std::to_string(values.size()) + " values, not " + std::to_string(count));
  }
  for (int64_t value : values) {
    if (value < least || value > kLargestSize)
      return user_error("`" + name + "` has a value of " + std::to_string(value));
  }
  return values;
}

// As many positions as strides fit; `lower`: an odd element of padding goes in front.
void pad_same(const std::vector<int64_t>& size, bool lower, Window* window) {
  for (size_t i = 0; i < size.size(); i++) {
    const int64_t positions = (size[i] + window->strides[i] - 1) / window->strides[i];
    const int64_t total = std::max<int64_t>(0, (positions - 1) * window->strides[i] + window->extent(i) - size[i]);
    window->begin[i] = lower ? total - total / 2 : total / 2;
    window->end[i] = total - window->begin[i];
  }
}

}  // namespace

Expected<Window> import_window(ImportContext& context, const std::vector<int64_t>& size, std::vector<int64_t> kernel) {
  const Attrs& attrs = context.attrs();
  const std::vector<int64_t> named = attrs.ints("kernel_shape");
  if (kernel.empty()) kernel = named;
  if (kernel.size() != size.size() || (!named.empty() && named != kernel)) {
    return user_error("its `kernel_shape` does not fit " + std::to_string(size.size()) +
                      " spatial dims and its weight");
  }
  auto strides = per_dim(attrs, "strides", size.size(), 1, 1);
  auto dilations = per_dim(attrs, "dilations", size.size(), 1, 1);
  auto pads = per_dim(attrs, "pads", 2 * size.size(), 0, 0);
  for (const auto* values : {&strides, &dilations, &pads}) {
    if (!*values) return tl::make_unexpected(values->error());
  }
  Attrs given{{"strides", *strides}, {"dilations", *dilations}, {"pads", *pads}};
  auto window = checked_window(given, std::move(kernel), size.size());
  if (!window) return window;
  const std::string auto_pad = attrs.s("auto_pad", "NOTSET");
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    pad_same(size, auto_pad == "SAME_LOWER", &*window);
  } else if (auto_pad == "VALID") {
    std::fill(window->begin.begin(), window->begin.end(), 0);
    std::fill(window->end.begin(), window->end.end(), 0);
  } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
    return user_error("its `auto_pad` is `" + auto_pad + "`");
  }
  return window;
}

void set_window(const Window& window, Attrs* attrs) {
  std::vector<int64_t> pads = window.begin;
  pads.insert(pads.end(), window.end.begin(), window.end.end());
  attrs->set("strides", window.strides);
  attrs->set("dilations", window.dilations);
  attrs->set("pads", pads);
}

Expected<Window> checked_window(const Attrs& attrs, std::vector<int64_t> kernel, size_t spatial) {
  if (kernel.size() != spatial || attrs.ints("strides").size() != spatial ||
      attrs.ints("dilations").size() != spatial || attrs.ints("pads").size() != 2 * spatial) {
    return user_error("its kernel, strides, dilations and pads do not fit " + std::to_string(spatial) +
                      " spatial dims");
  }
  for (int64_t size : kernel) {
    if (size < 1 || size > kLargestSize) return user_error("a dim of its kernel is " + std::to_string(size));
  }
  return window_of(attrs, std::move(kernel));
}

}  // namespace piper::ops
