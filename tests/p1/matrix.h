// The strategy matrix: models x strategies x worlds x ways to cut the batch.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace piper::p1 {

struct ModelCase {
  std::string name;
  std::string file;                        // ONNX
  std::string data;                        // safetensors
  std::map<std::string, std::string> sets; // --set that the model needs (its loss)
  int layers = 4;
  bool batch_norm = false;  // statistics are of groups of samples, as large as the cut of the batch leaves them whole
  bool experts = false;     // that a strategy may divide
};

struct Cell {
  ModelCase model;
  std::string strategy;                        // file stem in strategies/, or the path of a .piper file
  std::map<std::string, std::string> defines;  // pp, dp, v, microbatches
  std::map<std::string, std::string> sets;     // batch, optimizer, clip
  int world = 1;
  bool processes = false;                      // real ranks over Gloo instead of threads
  bool rendezvous = false;                     // loopback sends block until they are received

  std::string name() const;
  // The same training on one device.
  Cell reference() const;
  std::string reference_key() const;
};

std::vector<ModelCase> models();

// Every legal cell.
std::vector<Cell> matrix();

// A dozen cells as real processes.
std::vector<Cell> process_cells();

}  // namespace piper::p1
