// infer.h: binding of a call to a signature: checks of shapes and dtypes, shapes and dtypes of the outputs.
//
// A template over the type of a dimension. DimTraits<int64_t> takes -1 for an unknown size; a host
// specialises DimTraits for its symbolic integers (torch's SymInt), whose conditions it records or decides.
// The counterpart of src/opforge/schema/infer.py.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "opforge/detail/binding.h"
#include "opforge/detail/dim_traits.h"
#include "opforge/detail/dim_values.h"
#include "opforge/detail/signature.h"

namespace opforge::detail {

template <class D, class Traits = DimTraits<D>>
class Binder {
  using Values = DimValues<D, Traits>;
  using Value = typename Values::Value;
  using Known = typename Values::Known;

 public:
  Binder(const Signature& signature, const std::string& where, Problem* problem)
      : signature_(signature), where_(where), problem_(problem) {}

  // shapes, dtypes: one per input tensor, flat (the tensors of the variadic input at the end); absent
  // optional inputs at the end may be left out. integers: per declared attribute, its value where it is an
  // int (others are not read); may be NULL without attributes.
  bool run(const ShapeView<D>* shapes, const opforge_dtype* dtypes, size_t count, const int64_t* integers,
           Binding<D>* out) {
    out_ = out;
    shapes_ = shapes;
    out->shapes.clear();
    out->dtypes.clear();
    out->output_counts.clear();
    return assign(count) && bind_types(dtypes) && bind_inputs(integers) && outputs();
  }

 private:
  struct Tensor {
    const Parameter* parameter;
    int32_t shape;   // index into shapes
    int32_t number;  // among the tensors of its parameter
  };
  // ---- words
  std::string at(const std::string& label) const { return where_.empty() ? label : where_ + ", " + label; }
  std::string label(const Tensor& tensor) const {
    const std::string number = tensor.parameter->variadic ? "[" + std::to_string(tensor.number) + "]" : "";
    return "argument " + tensor.parameter->name + number;
  }
  std::string origin(const Known& known) const {
    return known.origin <= -2
               ? "attribute " + signature_.attributes[static_cast<size_t>(-2 - known.origin)].name
               : label(tensors_[static_cast<size_t>(known.origin)]);
  }
  std::string shape_text(const Tensor& tensor) const {
    std::vector<Value> dims;
    for (int32_t k = 0; k < rank(tensor); ++k) dims.push_back(dim_of(tensor, k));
    return Values::text(dims);
  }
  bool fail(const std::string& label, const std::string& what, const std::string& expected,
            const std::string& got) {
    return problem_->set(Problem::kArgument, what, at(label), expected, got);
  }
  bool wrong_count(size_t got) {
    return problem_->set(Problem::kArgument, "wrong number of inputs", where_, signature_.expected_inputs(),
                         std::to_string(got));
  }

  // ---- inputs
  int32_t rank(const Tensor& tensor) const { return shapes_[tensor.shape].rank; }
  Value dim_of(const Tensor& tensor, int32_t index) const {
    return Traits::from_host(shapes_[tensor.shape].dims[index]);
  }
  Known& known(int32_t id) { return values_.at(id); }
  int32_t index_of(const Tensor& tensor) const { return static_cast<int32_t>(&tensor - tensors_.data()); }

  bool assign(size_t count) {
    const size_t parameters = signature_.inputs.size();
    if (count > parameters && !signature_.variadic()) return wrong_count(count);
    out_->input_counts.assign(parameters, 0);
    tensors_.reserve(count);
    for (size_t k = 0; k < count; ++k) {
      const size_t index = k < parameters ? k : parameters - 1;
      const Parameter& parameter = signature_.inputs[index];
      if (shapes_[k].rank == kAbsent) {
        if (!parameter.optional)
          return fail("argument " + parameter.name, "missing input", "a tensor", "nothing");
        continue;
      }
      tensors_.push_back({&parameter, static_cast<int32_t>(k), out_->input_counts[index]++});
    }
    for (size_t k = 0; k < parameters; ++k)
      if (out_->input_counts[k] == 0 && !signature_.inputs[k].optional) return wrong_count(tensors_.size());
    return true;
  }

  bool bind_types(const opforge_dtype* dtypes) {
    out_->types.assign(signature_.types.size(), opforge_dtype{});
    for (const Tensor& tensor : tensors_) {
      const opforge_dtype dtype = dtypes[tensor.shape];
      const Parameter& parameter = *tensor.parameter;
      if (!is_known(dtype)) continue;
      if (parameter.variable < 0) {
        if (!same(dtype, parameter.dtype)) return wrong_dtype(tensor, parameter.type, dtype);
        continue;
      }
      opforge_dtype& bound = out_->types[static_cast<size_t>(parameter.variable)];
      const TypeVariable& variable = signature_.types[static_cast<size_t>(parameter.variable)];
      if (is_known(bound)) {
        if (same(bound, dtype)) continue;
        const Tensor* first = &tensors_[0];
        while (first->parameter->variable != parameter.variable || !is_known(dtypes[first->shape])) ++first;
        return wrong_dtype(tensor, dtype_name(bound) + ", as " + variable.name + " in " + label(*first),
                           dtype);
      }
      bool allowed = variable.dtypes.empty();
      for (const opforge_dtype& other : variable.dtypes) allowed |= same(other, dtype);
      if (!allowed) {
        std::vector<std::string> words;
        for (const opforge_dtype& other : variable.dtypes) words.push_back(dtype_name(other));
        return wrong_dtype(tensor, variable.name + ": " + join(words), dtype);
      }
      bound = dtype;
    }
    return true;
  }
  bool wrong_dtype(const Tensor& tensor, const std::string& expected, opforge_dtype got) {
    return problem_->set(Problem::kDtype, "wrong dtype", at(label(tensor)), expected, dtype_name(got));
  }

  struct Pending {
    const Tensor* tensor;
    int32_t index;
    const Dim* dim;
  };

  // Binds names and runs first, then solves and checks expressions until none is left.
  bool bind_inputs(const int64_t* integers) {
    values_.names.resize(signature_.names.size());
    for (size_t id = 0; id < values_.names.size(); ++id)
      if (const int32_t attribute = signature_.name_attribute[id]; attribute >= 0) {
        values_.names[id].bound = true;
        values_.names[id].one = Traits::from(integers[attribute]);
        values_.names[id].origin = -2 - attribute;
      }
    std::vector<Pending> pending;
    for (const Tensor& tensor : tensors_)
      if (rank(tensor) != kUnknownRank && !match(tensor, &pending)) return false;
    while (!pending.empty()) {
      std::vector<Pending> rest;
      for (const Pending& entry : pending) {
        bool solved = false;
        if (!solve(entry, &solved)) return false;
        if (!solved) rest.push_back(entry);
      }
      if (rest.size() == pending.size()) break;
      pending = std::move(rest);
    }
    for (const Tensor& tensor : tensors_)  // what only tensors of unknown rank could have bound is unknown
      if (rank(tensor) == kUnknownRank)
        for (const Dim& dim : tensor.parameter->dims)
          each_name(dim, [&](const std::string&, int32_t id) {
            if (known(id).bound) return;
            known(id).bound = true;
            known(id).ranked = false;
            known(id).origin = index_of(tensor);
          });
    return true;
  }

  bool match(const Tensor& tensor, std::vector<Pending>* pending) {
    const Parameter& parameter = *tensor.parameter;
    const int32_t least = static_cast<int32_t>(parameter.dims.size()) - parameter.any_rank;
    const int32_t got = rank(tensor);
    if (parameter.any_rank ? got < least : got != least)
      return fail(label(tensor), "wrong rank",
                  "rank " + std::to_string(least) + (parameter.any_rank ? " or more, " : ", ") +
                      parameter.shape_text(),
                  "rank " + std::to_string(got) + ", shape " + shape_text(tensor));
    int32_t index = 0;
    // Runs bind before single dimensions, as in Python, so that both report the same mistake first.
    for (const Dim& dim : parameter.dims) {
      if (dim.kind == Dim::kRest && !bind_run(tensor, index, got - least, dim)) return false;
      index += dim.kind == Dim::kRest ? got - least : 1;
    }
    index = 0;
    for (const Dim& dim : parameter.dims) {
      if (dim.kind == Dim::kInteger && !check(tensor, index, Traits::from(dim.value), dim)) return false;
      if (dim.kind == Dim::kName && !bind_name(tensor, index, dim)) return false;
      if (dim.kind == Dim::kBinary) pending->push_back({&tensor, index, &dim});
      index += dim.kind == Dim::kRest ? got - least : 1;
    }
    return true;
  }

  bool bind_name(const Tensor& tensor, int32_t index, const Dim& dim) {
    Known& name = known(dim.ids[0]);
    const Value value = dim_of(tensor, index);
    if (name.bound) {
      if (!check(tensor, index, name.one, dim)) return false;
      if (!Values::sharpens(name.one, value)) return true;
    }
    name.bound = true;
    name.one = value;
    name.origin = index_of(tensor);
    return true;
  }

  bool bind_run(const Tensor& tensor, int32_t begin, int32_t length, const Dim& dim) {
    Known& name = known(dim.ids[0]);
    if (!name.bound) {
      name.bound = true;
      name.origin = index_of(tensor);
      name.run.clear();
      for (int32_t k = 0; k < length; ++k) name.run.push_back(dim_of(tensor, begin + k));
      return true;
    }
    bool good = name.run.size() == static_cast<size_t>(length);
    for (int32_t k = 0; good && k < length; ++k)
      good = Values::equal(name.run[static_cast<size_t>(k)], dim_of(tensor, begin + k));
    if (!good) {
      std::vector<Value> got;
      for (int32_t k = 0; k < length; ++k) got.push_back(dim_of(tensor, begin + k));
      return fail(label(tensor), "wrong shape",
                  "*" + dim.names[0] + " = " + Values::text(name.run) + ", as in " + origin(name),
                  Values::text(got) + " in shape " + shape_text(tensor));
    }
    for (int32_t k = 0; k < length; ++k) {
      const Value value = dim_of(tensor, begin + k);
      if (Values::sharpens(name.run[static_cast<size_t>(k)], value)) name.run[static_cast<size_t>(k)] = value;
    }
    return true;
  }

  // Checks an expression whose names are known, or solves a*n+b for n; *solved stays false where neither is
  // possible yet.
  bool solve(const Pending& entry, bool* solved) {
    const Tensor& tensor = *entry.tensor;
    const Dim& dim = *entry.dim;
    bool complete = true;
    each_name(dim, [&](const std::string&, int32_t id) { complete = complete && known(id).bound; });
    if (complete) {
      *solved = true;
      Value expected;
      return evaluate(label(tensor), dim, &expected) && check(tensor, entry.index, expected, dim);
    }
    const auto form = linear(dim);
    if (!form) return true;
    *solved = true;
    Known& name = known(form->id);
    const Value value = dim_of(tensor, entry.index);
    name.bound = true;
    name.origin = index_of(tensor);
    if (!value) return true;
    D difference = *value, result = *value;
    bool good = Traits::compute('-', *value, Traits::from(form->b), &difference);
    good = good && (form->a == 1 || form->a == -1 || Traits::require_divisible(difference, form->a));
    result = difference;
    good = good && (form->a == 1 || Traits::compute('/', difference, Traits::from(form->a), &result));
    good = good && ((form->b <= 0 && form->a > 0) || Traits::require_nonnegative(result));
    name.one = result;
    return good || fail(label(tensor), "dimension " + std::to_string(entry.index) + " is wrong",
                        to_string(dim) + " with " + form->name + " >= 0",
                        Values::text(value) + " in shape " + shape_text(tensor));
  }

  bool check(const Tensor& tensor, int32_t index, const Value& expected, const Dim& dim) {
    const Value value = dim_of(tensor, index);
    if (Values::equal(expected, value)) return true;
    const std::string name = to_string(dim);
    std::string shown = name == Values::text(expected) ? name : name + " = " + Values::text(expected);
    if (dim.kind == Dim::kName)
      shown += known(dim.ids[0]).origin <= -2 ? ", the attribute" : ", as in " + origin(known(dim.ids[0]));
    return fail(label(tensor), "dimension " + std::to_string(index) + " is wrong", shown,
                Values::text(value) + " in shape " + shape_text(tensor));
  }

  bool evaluate(const std::string& label, const Dim& dim, Value* out) {
    const char* reason = values_.compute(dim, out);
    if (reason == nullptr) return true;
    std::vector<std::string> used, seen;
    each_name(dim, [&](const std::string& name, int32_t id) {
      for (const std::string& other : seen)
        if (other == name) return;
      seen.push_back(name);
      used.push_back(name + " = " + Values::text(known(id).one));
    });
    return fail(label, "a dimension cannot be computed", to_string(dim),
                used.empty() ? reason : reason + std::string(" with ") + join(used));
  }

  // ---- outputs
  bool outputs() {
    for (const Parameter& parameter : signature_.outputs) {
      bool present = true;
      for (const Dim& dim : parameter.dims)
        each_name(dim, [&](const std::string&, int32_t id) { present = present && known(id).bound; });
      if (parameter.variable >= 0 && parameter.optional) {
        bool typed = false;
        for (const Tensor& tensor : tensors_) typed |= tensor.parameter->variable == parameter.variable;
        present = present && typed;
      }
      const int32_t count = !present ? 0 : parameter.variadic ? out_->input_counts.back() : 1;
      out_->output_counts.push_back(count);
      if (count == 0) continue;
      OutputShape<D> shape;
      if (!output_shape(parameter, &shape)) return false;
      const opforge_dtype dtype =
          parameter.variable >= 0 ? out_->types[static_cast<size_t>(parameter.variable)] : parameter.dtype;
      for (int32_t k = 0; k < count; ++k) {
        out_->shapes.push_back(shape);
        out_->dtypes.push_back(dtype);
      }
    }
    return true;
  }

  bool output_shape(const Parameter& parameter, OutputShape<D>* out) {
    std::vector<Value> dims;
    for (const Dim& dim : parameter.dims) {
      if (dim.kind == Dim::kAny) {
        dims.emplace_back();
      } else if (dim.kind == Dim::kRest) {
        if (!known(dim.ids[0]).ranked) out->ranked = false;
        dims.insert(dims.end(), known(dim.ids[0]).run.begin(), known(dim.ids[0]).run.end());
      } else if (dim.kind == Dim::kBroadcast) {
        if (!broadcast(parameter, dim, &dims, &out->ranked)) return false;
      } else {
        Value value;
        if (!evaluate("output " + parameter.name, dim, &value)) return false;
        const auto number = value ? Traits::constant(*value) : std::nullopt;
        if (number && *number < 0)
          return fail("output " + parameter.name, "negative dimension", to_string(dim) + " >= 0",
                      Values::text(value));
        dims.push_back(value);
      }
    }
    if (!out->ranked) return true;
    for (const Value& value : dims) out->dims.push_back(value ? *value : Traits::unknown());
    return true;
  }

  bool broadcast(const Parameter& parameter, const Dim& dim, std::vector<Value>* dims, bool* ranked) {
    size_t longest = 0;
    for (const int32_t id : dim.ids) {
      if (!known(id).ranked) *ranked = false;
      longest = std::max(longest, known(id).run.size());
    }
    if (!*ranked) return true;
    const size_t first = dims->size();
    dims->resize(first + longest, Value(Traits::from(1)));
    for (const int32_t id : dim.ids) {
      const std::vector<Value>& run = known(id).run;
      for (size_t back = 1; back <= run.size(); ++back) {
        Value& value = (*dims)[first + longest - back];
        if (!Values::broadcast_pair(&value, run[run.size() - back])) {
          std::vector<std::string> words;
          for (size_t k = 0; k < dim.ids.size(); ++k)
            words.push_back(dim.names[k] + " = " + Values::text(known(dim.ids[k]).run) + " in " +
                            origin(known(dim.ids[k])));
          return fail("output " + parameter.name, "shapes do not broadcast",
                      "dimensions, counted from the right, that are equal or 1", join(words));
        }
      }
    }
    return true;
  }

  const Signature& signature_;
  const std::string& where_;
  Problem* problem_;
  Binding<D>* out_ = nullptr;
  const ShapeView<D>* shapes_ = nullptr;
  std::vector<Tensor> tensors_;
  Values values_;
};

// Binds one call; see Binder::run.
template <class D>
bool bind(const Signature& signature, const std::string& where, const std::vector<ShapeView<D>>& shapes,
          const std::vector<opforge_dtype>& dtypes, const int64_t* integers, Binding<D>* out,
          Problem* problem) {
  return Binder<D>(signature, where, problem).run(shapes.data(), dtypes.data(), shapes.size(), integers, out);
}

// The value of each declared attribute for Binder::run: of ints, others 0.
inline std::vector<int64_t> integers_of(const std::vector<AttributeValue>& values) {
  std::vector<int64_t> integers;
  for (const AttributeValue& value : values)
    integers.push_back(value.kind == OPFORGE_ATTRIBUTE_INT ? value.ints[0] : 0);
  return integers;
}

}  // namespace opforge::detail
