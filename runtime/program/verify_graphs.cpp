// verify_graphs.cpp: proves the graphs: ids in range, schedule order, one producer per value, scopes of
// subgraphs.
#include "program/cursor.h"

namespace opforge {
namespace {

using format::kMaxPerNode;
using format::kMaxRecords;

class GraphVerifier {
 public:
  GraphVerifier(Program* program, Bump* scratch, Error* error) : p_(*program), error_(error) {
    // visible_[v] = g + 1: value v can be read in graph g at the point reached so far.
    visible_ = scratch->array<uint32_t>(p_.n_values);
    produced_ = scratch->array<uint8_t>(p_.n_values);
    depth_ = scratch->array<uint8_t>(p_.counts.graphs);
  }

  Status run() {
    if (visible_ == nullptr || produced_ == nullptr || depth_ == nullptr) {
      return error_->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory to verify the file");
    }
    uint32_t next_node = 0;
    for (uint32_t g = 0; g < p_.counts.graphs; ++g) {
      const format::Graph& graph = p_.graphs[g];
      if (graph.name >= p_.n_strings || graph.first_node != next_node ||
          graph.nodes > p_.counts.nodes - next_node) {
        return bad("a graph does not continue the nodes").found("graph %u", g);
      }
      if (g != 0 && depth_[g] == 0) return bad("no earlier node names a graph").found("graph %u", g);
      if (this->graph(g, graph)) return *error_;
      next_node += graph.nodes;
    }
    if (next_node != p_.counts.nodes) return bad("nodes outside of all graphs");
    return OPFORGE_STATUS_OK;
  }

 private:
  Error& bad(const char* what) {
    return error_->fail(OPFORGE_STATUS_CORRUPT, "%s", what).at("section 'program'");
  }
  Error& bad_node(uint32_t n, const char* what) {
    const StringView op = p_.text(p_.nodes[n].op);
    return error_->fail(OPFORGE_STATUS_CORRUPT, "%s", what)
        .at("section 'program', node %u '%.*s'", n, static_cast<int>(op.size), op.data);
  }

  // A list of ids: within the table, and no more ids in all lists together than there are.
  bool list(uint32_t first, uint32_t count, uint32_t limit) {
    used_ += count;
    return count <= limit && first <= p_.counts.ids && count <= p_.counts.ids - first &&
           used_ <= p_.counts.ids;
  }
  bool readable(int32_t id, uint32_t g) const {
    if (id < 0 || static_cast<uint32_t>(id) >= p_.n_values) return false;
    return p_.is_constant(static_cast<uint32_t>(id)) || visible_[id] == g + 1;
  }
  bool produce(int32_t id, uint32_t g) {
    if (id < 0 || static_cast<uint32_t>(id) >= p_.n_values) return false;
    if (p_.is_constant(static_cast<uint32_t>(id)) || produced_[id] != 0) return false;
    produced_[id] = 1;
    visible_[id] = g + 1;
    return true;
  }

  Status graph(uint32_t g, const format::Graph& graph) {
    if (!list(graph.first_input, graph.inputs, kMaxPerNode) ||
        !list(graph.first_output, graph.outputs, kMaxPerNode) ||
        !list(graph.first_capture, graph.captures, kMaxRecords) || (g == 0 && graph.captures != 0)) {
      return bad("the lists of a graph are not valid").found("graph %u", g);
    }
    for (uint32_t k = 0; k < graph.inputs; ++k) {
      if (!produce(p_.ids[graph.first_input + k], g)) {
        return bad("an input of a graph is a constant or has another producer")
            .found("graph %u, input %u", g, k);
      }
    }
    for (uint32_t k = 0; k < graph.captures; ++k) visible_[p_.ids[graph.first_capture + k]] = g + 1;
    for (uint32_t k = 0; k < graph.nodes; ++k) {
      if (node(g, graph.first_node + k)) return *error_;
    }
    for (uint32_t k = 0; k < graph.outputs; ++k) {
      if (!readable(p_.ids[graph.first_output + k], g)) {
        return bad("an output of a graph is not computed").found("graph %u, output %u", g, k);
      }
    }
    return OPFORGE_STATUS_OK;
  }

  Status node(uint32_t g, uint32_t n) {
    const format::Node& node = p_.nodes[n];
    if (node.op >= p_.n_strings || node.domain >= p_.n_strings)
      return bad("the name of a node is out of range");
    if (!list(node.first_input, node.inputs, kMaxPerNode) ||
        !list(node.first_output, node.outputs, kMaxPerNode)) {
      return bad_node(n, "its inputs or outputs are not valid lists");
    }
    for (uint32_t k = 0; k < node.inputs; ++k) {
      const int32_t id = p_.ids[node.first_input + k];
      if (id != -1 && !readable(id, g))
        return bad_node(n, "it reads a value that is not computed before").found("input %u", k);
    }
    if (node.first_attribute > p_.counts.attributes || node.attributes > format::kMaxAttributes ||
        node.attributes > p_.counts.attributes - node.first_attribute) {
      return bad_node(n, "its attributes are out of range");
    }
    attributes_ += node.attributes;
    if (attributes_ > p_.counts.attributes) return bad_node(n, "nodes share attributes");
    for (uint32_t k = 0; k < node.attributes; ++k) {
      if (attribute(g, n, node, k)) return *error_;
    }
    for (uint32_t k = 0; k < node.outputs; ++k) {
      const int32_t id = p_.ids[node.first_output + k];
      if (id != -1 && !produce(id, g)) {
        return bad_node(n, "it writes a constant or a value that has another producer").found("output %u", k);
      }
    }
    return OPFORGE_STATUS_OK;
  }

  Status attribute(uint32_t g, uint32_t n, const format::Node& node, uint32_t k) {
    const format::Attribute& a = p_.attributes[node.first_attribute + k];
    bool good = a.name < p_.n_strings;
    for (uint32_t j = 0; good && j < k; ++j) good = p_.attributes[node.first_attribute + j].name != a.name;
    switch (a.kind) {
      case format::kInt:
      case format::kFloat:
        good = good && a.count == 1;
        break;
      case format::kText:
        good = good && a.count == 1 && a.payload < p_.n_strings;
        break;
      case format::kBlob:
        good = good && a.count == 1 && a.payload < p_.n_blobs;
        break;
      case format::kInts:
        good = good && a.count <= p_.counts.integers && a.payload <= p_.counts.integers - a.count;
        break;
      case format::kFloats:
        good = good && a.count <= p_.counts.floats && a.payload <= p_.counts.floats - a.count;
        break;
      case format::kTexts:
        good =
            good && a.payload <= UINT32_MAX && list(static_cast<uint32_t>(a.payload), a.count, kMaxRecords);
        for (uint32_t j = 0; good && j < a.count; ++j) {
          const int32_t id = p_.ids[a.payload + j];
          good = id >= 0 && static_cast<uint32_t>(id) < p_.n_strings;
        }
        break;
      case format::kSubgraph:
        good =
            good && a.count == 1 && a.payload > g && a.payload < p_.counts.graphs && depth_[a.payload] == 0;
        if (good && depth_[g] >= format::kMaxNesting) {
          return bad_node(n, "subgraphs are nested too deep")
              .wanted("at most %u levels", format::kMaxNesting);
        }
        if (good) {
          depth_[a.payload] = static_cast<uint8_t>(depth_[g] + 1);
          good = captures_visible(p_.graphs[a.payload], g);
        }
        break;
      default:
        good = false;
    }
    return good ? OPFORGE_STATUS_OK : bad_node(n, "an attribute is not valid").found("attribute %u", k);
  }

  bool captures_visible(const format::Graph& subgraph, uint32_t g) const {
    if (subgraph.first_capture > p_.counts.ids ||
        subgraph.captures > p_.counts.ids - subgraph.first_capture) {
      return false;
    }
    for (uint32_t k = 0; k < subgraph.captures; ++k) {
      if (!readable(p_.ids[subgraph.first_capture + k], g)) return false;
    }
    return true;
  }

  Program& p_;
  Error* error_;
  uint32_t* visible_;
  uint8_t* produced_;
  uint8_t* depth_;  // of a graph that an earlier node names; 0 = none does
  uint64_t used_ = 0, attributes_ = 0;
};

Status signature(Program* program, Error* error) {
  Cursor cursor(*program, format::kSignature, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->n_inputs = head[0];
  program->n_outputs = head[1];
  program->signature = cursor.array<format::Named>(uint64_t{head[0]} + head[1], 2 * kMaxPerNode);
  if (program->signature == nullptr || cursor.finish()) return *error;
  const format::Graph& main = program->graphs[0];
  bool good = main.inputs == program->n_inputs && main.outputs == program->n_outputs;
  for (uint32_t k = 0; good && k < program->n_inputs + program->n_outputs; ++k) {
    const format::Named& entry = program->signature[k];
    const uint32_t at = k < main.inputs ? main.first_input + k : main.first_output + k - main.inputs;
    good = entry.name < program->n_strings && static_cast<int64_t>(entry.id) == program->ids[at] &&
           program->values[entry.id].layout == 0 && program->values[entry.id].packing == 0;
    for (uint32_t j = k < main.inputs ? 0 : main.inputs; good && j < k; ++j) {
      good = !same_text(program->text(program->signature[j].name), program->text(entry.name));
    }
    if (!good) {
      return error->fail(OPFORGE_STATUS_CORRUPT, "an input or output is not that of the main graph")
          .at("section 'signature'")
          .found("entry %u", k);
    }
  }
  if (!good) {
    return error
        ->fail(OPFORGE_STATUS_CORRUPT, "the numbers of inputs and outputs are not those of the main graph")
        .at("section 'signature'");
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace

Status verify_graphs(Program* program, Bump* scratch, Error* error) {
  Cursor cursor(*program, format::kProgram, error);
  const auto* head = cursor.array<format::ProgramHead>(1, 1);
  if (head == nullptr) return *error;
  program->counts = *head;
  if (head->graphs == 0) {
    return error->fail(OPFORGE_STATUS_CORRUPT, "there is no main graph").at("section 'program'");
  }
  program->graphs = cursor.array<format::Graph>(head->graphs, format::kMaxGraphs);
  if (program->graphs == nullptr) return *error;
  program->nodes = cursor.array<format::Node>(head->nodes, kMaxRecords);
  if (program->nodes == nullptr) return *error;
  program->attributes = cursor.array<format::Attribute>(head->attributes, kMaxRecords);
  if (program->attributes == nullptr) return *error;
  program->integers = cursor.array<int64_t>(head->integers, uint64_t{kMaxRecords} * 16);
  if (program->integers == nullptr) return *error;
  program->ids = cursor.array<int32_t>(head->ids, uint64_t{kMaxRecords} * 16);
  if (program->ids == nullptr) return *error;
  program->floats = cursor.array<float>(head->floats, uint64_t{kMaxRecords} * 16);
  if (program->floats == nullptr || cursor.finish()) return *error;
  if (Status status = GraphVerifier(program, scratch, error).run()) return status;
  return signature(program, error);
}

}  // namespace opforge
